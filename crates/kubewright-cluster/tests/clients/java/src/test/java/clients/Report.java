package clients;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.Callable;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestWatcher;

/** Prints one line for each test, for {@code cargo xtask clients}. */
class Report implements TestWatcher {
  private final String client;

  Report(String client) {
    this.client = client;
  }

  @Override
  public void testSuccessful(ExtensionContext context) {
    System.out.printf("ok %s %s%n", client, context.getDisplayName());
  }

  @Override
  public void testFailed(ExtensionContext context, Throwable cause) {
    String reason = String.valueOf(cause).replaceAll("\\s+", " ");
    System.out.printf("FAIL %s %s: %s%n", client, context.getDisplayName(), reason);
  }

  /** Waits for a condition. */
  static void until(String what, Callable<Boolean> condition) throws Exception {
    Instant deadline = Instant.now().plus(Duration.ofSeconds(30));
    while (Instant.now().isBefore(deadline)) {
      if (condition.call()) {
        return;
      }
      Thread.sleep(50);
    }
    throw new AssertionError("timed out waiting until " + what);
  }

  /** Closes all connections between clients and the API server. */
  static void cutConnections() throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create(System.getenv("KUBEWRIGHT_CUT"))).build();
    HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
  }
}
