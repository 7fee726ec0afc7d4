package clients;

// ANCHOR: example
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class ExampleTest {
  @RegisterExtension static final EmbeddedCluster CLUSTER = new EmbeddedCluster();
  // ANCHOR_END: example
  @RegisterExtension static final Report REPORT = new Report("fabric8");
  // ANCHOR: test

  @Test
  @DisplayName("own-cluster")
  void ownCluster() {
    Config config = Config.fromKubeconfig(CLUSTER.kubeconfig().toFile());
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      ConfigMap greeting =
          new ConfigMapBuilder().withNewMetadata().withName("greeting").endMetadata().addToData("text", "hello").build();
      client.configMaps().inNamespace("default").resource(greeting).create();

      ConfigMap found = client.configMaps().inNamespace("default").withName("greeting").get();

      assertEquals(Map.of("text", "hello"), found.getData());
    }
  }
}
// ANCHOR_END: test
