package clients;

import static clients.Report.cutConnections;
import static clients.Report.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.ServiceAccountBuilder;
import io.fabric8.kubernetes.api.model.StatusDetails;
import io.fabric8.kubernetes.api.model.apiextensions.v1.CustomResourceDefinition;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.LogWatch;
import io.fabric8.kubernetes.client.dsl.MixedOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.function.Executable;

/** fabric8's client against the cluster of KUBECONFIG. */
class Fabric8Test {
  private static final String NAMESPACE = "fabric8";
  private static final String GROUP = "fabric8.clients.example.com";

  @RegisterExtension static final Report REPORT = new Report("fabric8");

  private static KubernetesClient client;

  @BeforeAll
  static void connect() throws Exception {
    // Failures are reported, not retried.
    Config config = new ConfigBuilder(Config.autoConfigure(null)).withRequestRetryBackoffLimit(0).build();
    client = new KubernetesClientBuilder().withConfig(config).build();
    client.namespaces()
        .resource(new NamespaceBuilder().withNewMetadata().withName(NAMESPACE).endMetadata().build()).create();
    until("the namespace has a service account",
        () -> !client.serviceAccounts().inNamespace(NAMESPACE).list().getItems().isEmpty());
  }

  @AfterAll
  static void close() {
    client.close();
  }

  private static ConfigMap configMap(String name, Map<String, String> data) {
    return new ConfigMapBuilder().withNewMetadata().withName(name).withNamespace(NAMESPACE).endMetadata()
        .withData(data).build();
  }

  private static Resource<ConfigMap> map(String name) {
    return client.configMaps().inNamespace(NAMESPACE).withName(name);
  }

  private static ConfigMap create(ConfigMap map) {
    return client.resource(map).create();
  }

  private static void createPod(String name, String script) {
    Pod pod = Serialization.unmarshal("""
        apiVersion: v1
        kind: Pod
        metadata: {name: %1$s, namespace: %3$s, labels: {app: %1$s}}
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 0
          containers:
          - {name: main, image: busybox, command: [sh, -c, '%2$s']}
        """.formatted(name, script, NAMESPACE), Pod.class);
    client.resource(pod).create();
  }

  private static Deployment createDeployment(String name) {
    Deployment deployment = Serialization.unmarshal("""
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: %1$s, namespace: %2$s}
        spec:
          replicas: 0
          selector: {matchLabels: {app: %1$s}}
          template:
            metadata: {labels: {app: %1$s}}
            spec:
              terminationGracePeriodSeconds: 0
              containers:
              - {name: main, image: busybox, command: [sleep, '1000']}
        """.formatted(name, NAMESPACE), Deployment.class);
    return client.resource(deployment).create();
  }

  private static String phase(String pod) {
    return client.pods().inNamespace(NAMESPACE).withName(pod).get().getStatus().getPhase();
  }

  /** Checks the code and the reason of an error. */
  private static KubernetesClientException refused(int code, String reason, Executable call) {
    KubernetesClientException error = assertThrows(KubernetesClientException.class, call);
    assertEquals(code, error.getCode(), error.getMessage());
    assertEquals(reason, error.getStatus().getReason());
    return error;
  }

  @Test
  @DisplayName("replace-builtin")
  void replaceBuiltin() {
    create(configMap("replaced", Map.of("a", "1")));
    ConfigMap found = map("replaced").get();
    found.setData(Map.of("a", "2"));
    assertEquals(Map.of("a", "2"), client.resource(found).update().getData());

    createDeployment("replaced");
    Deployment changed = client.apps().deployments().inNamespace(NAMESPACE).withName("replaced").edit(running -> {
      running.getMetadata().setLabels(Map.of("tier", "web"));
      // The Deployment controller writes the status at any time.
      running.getMetadata().setResourceVersion(null);
      return running;
    });
    assertEquals(Map.of("tier", "web"), changed.getMetadata().getLabels());
  }

  @Test
  @DisplayName("replace-custom")
  void replaceCustom() throws Exception {
    CustomResourceDefinition definition = Serialization.unmarshal("""
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata: {name: widgets.%1$s}
        spec:
          group: %1$s
          scope: Namespaced
          names: {plural: widgets, singular: widget, kind: Widget}
          versions:
          - name: v1
            served: true
            storage: true
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec: {type: object, properties: {size: {type: integer, minimum: 1}}}
        """.formatted(GROUP), CustomResourceDefinition.class);
    var resource = client.resource(definition);
    resource.create();
    until("the kind is established", () -> {
      var status = resource.get().getStatus();
      return status != null && status.getConditions() != null && status.getConditions().stream()
          .anyMatch(condition -> condition.getType().equals("Established") && condition.getStatus().equals("True"));
    });
    ResourceDefinitionContext kind = new ResourceDefinitionContext.Builder()
        .withGroup(GROUP).withVersion("v1").withKind("Widget").withPlural("widgets").withNamespaced(true).build();
    var widgets = client.genericKubernetesResources(kind).inNamespace(NAMESPACE);
    GenericKubernetesResource widget = Serialization.unmarshal(
        "{\"apiVersion\": \"%s/v1\", \"kind\": \"Widget\", \"metadata\": {\"name\": \"one\"}, \"spec\": {\"size\": 1}}"
            .formatted(GROUP), GenericKubernetesResource.class);
    widgets.resource(widget).create();
    GenericKubernetesResource found = widgets.withName("one").get();
    found.setAdditionalProperty("spec", Map.of("size", 2));
    GenericKubernetesResource replaced = widgets.resource(found).update();
    assertEquals(2, (int) replaced.get("spec", "size"));
    assertEquals(2, replaced.getMetadata().getGeneration());
  }

  @Test
  @DisplayName("status-of-a-new-object")
  void statusOfANewObject() {
    assertNotNull(createDeployment("fresh").getStatus());
  }

  @Test
  @DisplayName("patch-json")
  void patchJson() {
    create(configMap("patched-json", Map.of("a", "1", "b", "1")));
    ConfigMap patched = map("patched-json").patch(PatchContext.of(PatchType.JSON), """
        [{"op": "test", "path": "/data/a", "value": "1"},
         {"op": "replace", "path": "/data/a", "value": "2"},
         {"op": "remove", "path": "/data/b"}]""");
    assertEquals(Map.of("a", "2"), patched.getData());
  }

  @Test
  @DisplayName("patch-merge")
  void patchMerge() {
    create(configMap("patched-merge", Map.of("a", "1", "b", "1")));
    String patch = "{\"data\": {\"a\": \"2\", \"b\": null}}";
    ConfigMap patched = map("patched-merge").patch(PatchContext.of(PatchType.JSON_MERGE), patch);
    assertEquals(Map.of("a", "2"), patched.getData());
  }

  @Test
  @DisplayName("patch-strategic")
  void patchStrategic() {
    createDeployment("patched");
    String patch =
        "{\"spec\": {\"template\": {\"spec\": {\"containers\": [{\"name\": \"sidecar\", \"image\": \"busybox\"}]}}}}";
    Deployment patched = client.apps().deployments().inNamespace(NAMESPACE).withName("patched")
        .patch(PatchContext.of(PatchType.STRATEGIC_MERGE), patch);
    assertEquals(2, patched.getSpec().getTemplate().getSpec().getContainers().size());
  }

  @Test
  @DisplayName("apply")
  void apply() {
    ConfigMap first = client.resource(configMap("applied", Map.of("a", "1"))).fieldManager("one").serverSideApply();
    ConfigMap again = client.resource(configMap("applied", Map.of("a", "1"))).fieldManager("one").serverSideApply();
    assertEquals(first.getMetadata().getResourceVersion(), again.getMetadata().getResourceVersion());
    ConfigMap third = configMap("applied", Map.of("a", "3"));
    refused(409, "Conflict", () -> client.resource(third).fieldManager("two").serverSideApply());
    ConfigMap forced = client.resource(third).fieldManager("two").forceConflicts().serverSideApply();
    assertEquals(Map.of("a", "3"), forced.getData());
  }

  @Test
  @DisplayName("apply-of-what-was-read")
  void applyOfWhatWasRead() {
    ConfigMap created = create(configMap("read-and-applied", Map.of("a", "1")));
    created.setData(Map.of("a", "2"));
    created.getMetadata().setManagedFields(null);
    ConfigMap applied = client.resource(created).forceConflicts().serverSideApply();
    assertEquals(Map.of("a", "2"), applied.getData());
    // The resource version of an object that doesn't exist yet is ignored.
    created.getMetadata().setName("applied-as-new");
    created.getMetadata().setUid(null);
    assertEquals(Map.of("a", "2"), client.resource(created).serverSideApply().getData());
  }

  /** Sends a request again while the client takes a connection from its pool that has been cut. */
  private static void onNewConnection(Runnable request) throws Exception {
    until("the request is answered", () -> {
      try {
        request.run();
        return true;
      } catch (KubernetesClientException failure) {
        // Without an answer, the code is 0 or negative.
        if (failure.getCode() > 0) {
          throw failure;
        }
        return false;
      }
    });
  }

  @Test
  @DisplayName("informer-resumes")
  void informerResumes() throws Exception {
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    ConfigMap first = configMap("first", Map.of("a", "1"));
    first.getMetadata().setLabels(Map.of("watched", "yes"));
    create(first);
    ResourceEventHandler<ConfigMap> handler = new ResourceEventHandler<>() {
      @Override
      public void onAdd(ConfigMap map) {
        seen.add("add " + map.getMetadata().getName() + " " + map.getData().get("a"));
      }

      @Override
      public void onUpdate(ConfigMap old, ConfigMap map) {
        seen.add("update " + map.getMetadata().getName() + " " + map.getData().get("a"));
      }

      @Override
      public void onDelete(ConfigMap map, boolean unknown) {
        seen.add("delete " + map.getMetadata().getName());
      }
    };
    try (SharedIndexInformer<ConfigMap> informer =
        client.configMaps().inNamespace(NAMESPACE).withLabel("watched", "yes").inform(handler)) {
      until("the informer has listed", () -> seen.contains("add first 1"));
      cutConnections();
      onNewConnection(
          () -> create(new ConfigMapBuilder(first).editMetadata().withName("second").endMetadata().build()));
      map("first").patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\": {\"a\": \"2\"}}");
      until("the changes are seen", () -> seen.containsAll(List.of("add second 1", "update first 2")));
      cutConnections();
      onNewConnection(() -> map("second").delete());
      until("the deletion is seen", () -> seen.contains("delete second"));
    }
    assertEquals(Set.of("add first 1", "add second 1", "update first 2", "delete second"), new HashSet<>(seen));
    assertEquals(4, seen.size(), seen.toString());
  }

  @Test
  @DisplayName("wait")
  void waits() {
    createPod("awaited", "sleep 1000");
    Pod pod = client.pods().inNamespace(NAMESPACE).withName("awaited").waitUntilReady(20, TimeUnit.SECONDS);
    assertEquals("Running", pod.getStatus().getPhase());
  }

  @Test
  @DisplayName("paging")
  void paging() {
    for (int index = 0; index < 5; index++) {
      ConfigMap map = configMap("page-" + index, Map.of());
      map.getMetadata().setLabels(Map.of("paged", "yes"));
      create(map);
    }
    List<Integer> sizes = new ArrayList<>();
    String token = null;
    do {
      ConfigMapList page = client.configMaps().inNamespace(NAMESPACE).withLabel("paged", "yes")
          .list(new ListOptionsBuilder().withLimit(2L).withContinue(token).build());
      sizes.add(page.getItems().size());
      token = page.getMetadata().getContinue();
    } while (token != null && !token.isEmpty());
    assertEquals(List.of(2, 2, 1), sizes);
  }

  @Test
  @DisplayName("leader-election")
  void leaderElection() throws Exception {
    CountDownLatch leading = new CountDownLatch(1);
    AtomicBoolean lost = new AtomicBoolean();
    var running = client.leaderElector().withConfig(new LeaderElectionConfigBuilder()
        .withName("election")
        .withLock(new LeaseLock(NAMESPACE, "election", "candidate"))
        .withLeaseDuration(Duration.ofSeconds(3))
        .withRenewDeadline(Duration.ofSeconds(2))
        .withRetryPeriod(Duration.ofMillis(500))
        .withLeaderCallbacks(new LeaderCallbacks(leading::countDown, () -> lost.set(true), leader -> {}))
        .build()).build().start();
    assertTrue(leading.await(10, TimeUnit.SECONDS));
    Set<Object> renewals = new HashSet<>();
    until("the leader has renewed its lease for longer than it lasts", () -> {
      assertFalse(lost.get(), "the lease is lost");
      renewals.add(client.leases().inNamespace(NAMESPACE).withName("election").get().getSpec().getRenewTime());
      return renewals.size() > 9;
    });
    running.cancel(true);
  }

  @Test
  @DisplayName("logs")
  void logs() throws Exception {
    createPod("logger", "echo one; echo two");
    until("the pod has ended", () -> phase("logger").equals("Succeeded"));
    var pod = client.pods().inNamespace(NAMESPACE).withName("logger");
    assertEquals("one\ntwo\n", pod.getLog());
    assertEquals("two\n", pod.tailingLines(1).getLog());
  }

  @Test
  @DisplayName("logs-followed")
  void logsFollowed() throws Exception {
    createPod("talker", "for i in 1 2 3; do echo $i; sleep 0.2; done");
    until("the pod has started", () -> List.of("Running", "Succeeded").contains(phase("talker")));
    try (LogWatch log = client.pods().inNamespace(NAMESPACE).withName("talker").watchLog()) {
      assertEquals("1\n2\n3\n", new String(log.getOutput().readAllBytes(), StandardCharsets.UTF_8));
    }
  }

  @Test
  @DisplayName("scale")
  void scale() throws Exception {
    createDeployment("scaled");
    var deployment = client.apps().deployments().inNamespace(NAMESPACE).withName("scaled");
    deployment.scale(1);
    until("one replica is ready", () -> Integer.valueOf(1).equals(deployment.get().getStatus().getReadyReplicas()));
    var scale = deployment.scale((io.fabric8.kubernetes.api.model.autoscaling.v1.Scale) null);
    assertEquals("app=scaled", scale.getStatus().getSelector());
    assertEquals(1, scale.getSpec().getReplicas());
  }

  @Test
  @DisplayName("eviction")
  void evicts() throws Exception {
    createPod("evicted", "sleep 1000");
    var pod = client.pods().inNamespace(NAMESPACE).withName("evicted");
    assertTrue(pod.evict());
    until("the pod is gone", () -> pod.get() == null);
  }

  @Test
  @DisplayName("eviction-is-refused-by-a-budget")
  void evictionIsRefusedByABudget() throws Exception {
    createPod("guarded", "sleep 1000");
    client.resource(Serialization.unmarshal("""
        apiVersion: policy/v1
        kind: PodDisruptionBudget
        metadata: {name: guarded, namespace: %s}
        spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
        """.formatted(NAMESPACE), PodDisruptionBudget.class)).create();
    until("the pod runs", () -> phase("guarded").equals("Running"));
    assertFalse(client.pods().inNamespace(NAMESPACE).withName("guarded").evict());
  }

  @Test
  @DisplayName("token")
  void token() {
    client.serviceAccounts().inNamespace(NAMESPACE)
        .resource(new ServiceAccountBuilder().withNewMetadata().withName("robot").endMetadata().build()).create();
    String token =
        client.serviceAccounts().inNamespace(NAMESPACE).withName("robot").tokenRequest().getStatus().getToken();
    try (KubernetesClient robot = withToken(token)) {
      KubernetesClientException error =
          refused(403, "Forbidden", () -> robot.secrets().inNamespace(NAMESPACE).list());
      assertTrue(error.getMessage().contains("system:serviceaccount:" + NAMESPACE + ":robot"), error.getMessage());
    }
    try (KubernetesClient nobody = withToken("x")) {
      refused(401, "Unauthorized", () -> nobody.pods().inNamespace(NAMESPACE).list());
    }
  }

  private static KubernetesClient withToken(String token) {
    Config known = client.getConfiguration();
    Config config = new ConfigBuilder(Config.empty())
        .withMasterUrl(known.getMasterUrl())
        .withCaCertData(known.getCaCertData())
        .withOauthToken(token)
        .withRequestRetryBackoffLimit(0)
        .build();
    return new KubernetesClientBuilder().withConfig(config).build();
  }

  @Test
  @DisplayName("errors")
  void errors() {
    refused(404, "NotFound", () -> client.resource(configMap("absent", Map.of())).update());
    ConfigMap created = create(configMap("errors", Map.of("a", "1")));
    refused(409, "AlreadyExists", () -> create(configMap("errors", Map.of())));
    map("errors").patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\": {\"a\": \"2\"}}");
    String version = created.getMetadata().getResourceVersion();
    refused(409, "Conflict", () -> client.resource(created).lockResourceVersion(version).update());
    KubernetesClientException error = refused(422, "Invalid", () -> create(configMap("No_Name", Map.of())));
    assertEquals("metadata.name", error.getStatus().getDetails().getCauses().get(0).getField());
  }

  @Test
  @DisplayName("deletion-answers")
  void deletionAnswers() throws Exception {
    createPod("deleted", "sleep 1000");
    var pod = client.pods().inNamespace(NAMESPACE).withName("deleted");
    pod.delete();
    until("the pod is gone", () -> pod.get() == null);
    create(configMap("deleted", Map.of()));
    List<StatusDetails> details = map("deleted").delete();
    assertEquals("deleted", details.get(0).getName());
  }

  @Test
  @DisplayName("version")
  void version() {
    var version = client.getKubernetesVersion();
    assertEquals("1.36", version.getMajor() + "." + version.getMinor());
  }
}
