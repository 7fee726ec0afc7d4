package clients;

// ANCHOR: cluster
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Starts an embedded cluster before the tests of a class, and ends it after them. */
class EmbeddedCluster implements BeforeAllCallback, AfterAllCallback {
  private Process process;
  private Path kubeconfig;

  @Override
  public void beforeAll(ExtensionContext context) throws Exception {
    kubeconfig = Files.createTempDirectory("cluster").resolve("kubeconfig");
    process =
        new ProcessBuilder("kubewright", "cluster", "--wait", "--kubeconfig", kubeconfig.toString())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    process.inputReader().readLine(); // printed when the cluster is ready
  }

  @Override
  public void afterAll(ExtensionContext context) throws Exception {
    process.destroy();
    process.waitFor();
  }

  Path kubeconfig() {
    return kubeconfig;
  }
}
// ANCHOR_END: cluster
