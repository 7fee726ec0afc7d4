package clients;

import static clients.Report.cutConnections;
import static clients.Report.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.kubernetes.client.PodLogs;
import io.kubernetes.client.custom.V1Patch;
import io.kubernetes.client.extended.leaderelection.LeaderElectionConfig;
import io.kubernetes.client.extended.leaderelection.LeaderElector;
import io.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.ApiextensionsV1Api;
import io.kubernetes.client.openapi.apis.AppsV1Api;
import io.kubernetes.client.openapi.apis.AuthenticationV1Api;
import io.kubernetes.client.openapi.apis.CoordinationV1Api;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.apis.PolicyV1Api;
import io.kubernetes.client.openapi.apis.VersionApi;
import io.kubernetes.client.openapi.models.AuthenticationV1TokenRequest;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1CustomResourceDefinition;
import io.kubernetes.client.openapi.models.V1Deployment;
import io.kubernetes.client.openapi.models.V1Eviction;
import io.kubernetes.client.openapi.models.V1Namespace;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.openapi.models.V1Pod;
import io.kubernetes.client.openapi.models.V1PodDisruptionBudget;
import io.kubernetes.client.openapi.models.V1Scale;
import io.kubernetes.client.openapi.models.V1SelfSubjectReview;
import io.kubernetes.client.openapi.models.V1ServiceAccount;
import io.kubernetes.client.openapi.models.V1Status;
import io.kubernetes.client.openapi.models.V1TokenRequestSpec;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.ClientBuilder;
import io.kubernetes.client.util.Config;
import io.kubernetes.client.util.PatchUtils;
import io.kubernetes.client.util.Yaml;
import io.kubernetes.client.util.generic.GenericKubernetesApi;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesApi;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesObject;
import io.kubernetes.client.util.generic.options.PatchOptions;
import java.io.InputStream;
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
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.function.Executable;

/** The official Java client against the cluster of KUBECONFIG. */
class ClientJavaTest {
  private static final String NAMESPACE = "client-java";
  private static final String GROUP = "client-java.clients.example.com";

  @RegisterExtension static final Report REPORT = new Report("client-java");

  private static ApiClient client;
  private static CoreV1Api core;
  private static AppsV1Api apps;

  @BeforeAll
  static void connect() throws Exception {
    client = Config.defaultClient();
    // A watch is silent for longer than the default.
    client.setReadTimeout(0);
    core = new CoreV1Api(client);
    apps = new AppsV1Api(client);
    core.createNamespace(new V1Namespace().metadata(new V1ObjectMeta().name(NAMESPACE))).execute();
    until("the namespace has a service account",
        () -> !core.listNamespacedServiceAccount(NAMESPACE).execute().getItems().isEmpty());
  }

  private static V1ConfigMap configMap(String name, Map<String, String> data) {
    return new V1ConfigMap().metadata(new V1ObjectMeta().name(name)).data(data);
  }

  private static V1Pod pod(String name, String script) {
    return Yaml.loadAs("""
        metadata: {name: %1$s, labels: {app: %1$s}}
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 0
          containers:
          - {name: main, image: busybox, command: [sh, -c, '%2$s']}
        """.formatted(name, script), V1Pod.class);
  }

  private static V1Deployment deployment(String name) {
    return Yaml.loadAs("""
        metadata: {name: %1$s}
        spec:
          replicas: 0
          selector: {matchLabels: {app: %1$s}}
          template:
            metadata: {labels: {app: %1$s}}
            spec:
              terminationGracePeriodSeconds: 0
              containers:
              - {name: main, image: busybox, command: [sleep, '1000']}
        """.formatted(name), V1Deployment.class);
  }

  private static <T> T patch(Class<T> type, String format, PatchUtils.PatchCallFunc call) throws ApiException {
    return PatchUtils.patch(type, call, format, client);
  }

  private static V1ConfigMap patched(String name, String format, String patch) throws ApiException {
    return patch(V1ConfigMap.class, format,
        () -> core.patchNamespacedConfigMap(name, NAMESPACE, new V1Patch(patch)).buildCall(null));
  }

  /** Checks the code and the reason of an error, and returns its status. */
  private static JsonObject refused(int code, String reason, Executable call) {
    ApiException error = assertThrows(ApiException.class, call);
    assertEquals(code, error.getCode(), error.getResponseBody());
    JsonObject status = JsonParser.parseString(error.getResponseBody()).getAsJsonObject();
    assertEquals(reason, status.get("reason").getAsString());
    return status;
  }

  @Test
  @DisplayName("replace-builtin")
  void replaceBuiltin() throws Exception {
    core.createNamespacedConfigMap(NAMESPACE, configMap("replaced", Map.of("a", "1"))).execute();
    V1ConfigMap found = core.readNamespacedConfigMap("replaced", NAMESPACE).execute();
    found.setData(Map.of("a", "2"));
    V1ConfigMap replaced = core.replaceNamespacedConfigMap("replaced", NAMESPACE, found).execute();
    assertEquals(Map.of("a", "2"), replaced.getData());

    apps.createNamespacedDeployment(NAMESPACE, deployment("replaced")).execute();
    V1Deployment running = apps.readNamespacedDeployment("replaced", NAMESPACE).execute();
    running.getMetadata().setLabels(Map.of("tier", "web"));
    // The Deployment controller writes the status at any time.
    running.getMetadata().setResourceVersion(null);
    V1Deployment changed = apps.replaceNamespacedDeployment("replaced", NAMESPACE, running).execute();
    assertEquals(Map.of("tier", "web"), changed.getMetadata().getLabels());
  }

  @Test
  @DisplayName("replace-custom")
  void replaceCustom() throws Exception {
    V1CustomResourceDefinition definition = Yaml.loadAs("""
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
        """.formatted(GROUP), V1CustomResourceDefinition.class);
    ApiextensionsV1Api definitions = new ApiextensionsV1Api(client);
    definitions.createCustomResourceDefinition(definition).execute();
    until("the kind is established", () -> {
      var status = definitions.readCustomResourceDefinition("widgets." + GROUP).execute().getStatus();
      return status != null && status.getConditions() != null && status.getConditions().stream()
          .anyMatch(condition -> condition.getType().equals("Established") && condition.getStatus().equals("True"));
    });
    DynamicKubernetesApi widgets = new DynamicKubernetesApi(GROUP, "v1", "widgets", client);
    DynamicKubernetesObject widget = new DynamicKubernetesObject();
    widget.setApiVersion(GROUP + "/v1");
    widget.setKind("Widget");
    widget.setMetadata(new V1ObjectMeta().name("one").namespace(NAMESPACE));
    widget.getRaw().add("spec", JsonParser.parseString("{\"size\": 1}"));
    widgets.create(widget).throwsApiException();
    DynamicKubernetesObject found = widgets.get(NAMESPACE, "one").throwsApiException().getObject();
    found.setMetadata(found.getMetadata());
    found.getRaw().getAsJsonObject("spec").addProperty("size", 2);
    DynamicKubernetesObject replaced = widgets.update(found).throwsApiException().getObject();
    assertEquals(2, replaced.getRaw().getAsJsonObject("spec").get("size").getAsInt());
    assertEquals(2, replaced.getMetadata().getGeneration());
  }

  @Test
  @DisplayName("status-of-a-new-object")
  void statusOfANewObject() throws Exception {
    V1Deployment created = apps.createNamespacedDeployment(NAMESPACE, deployment("fresh")).execute();
    assertNotNull(created.getStatus());
  }

  @Test
  @DisplayName("patch-json")
  void patchJson() throws Exception {
    core.createNamespacedConfigMap(NAMESPACE, configMap("patched-json", Map.of("a", "1", "b", "1"))).execute();
    V1ConfigMap patched = patched("patched-json", V1Patch.PATCH_FORMAT_JSON_PATCH, """
        [{"op": "test", "path": "/data/a", "value": "1"},
         {"op": "replace", "path": "/data/a", "value": "2"},
         {"op": "remove", "path": "/data/b"}]""");
    assertEquals(Map.of("a", "2"), patched.getData());
  }

  @Test
  @DisplayName("patch-merge")
  void patchMerge() throws Exception {
    core.createNamespacedConfigMap(NAMESPACE, configMap("patched-merge", Map.of("a", "1", "b", "1"))).execute();
    String patch = "{\"data\": {\"a\": \"2\", \"b\": null}}";
    V1ConfigMap patched = patched("patched-merge", V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH, patch);
    assertEquals(Map.of("a", "2"), patched.getData());
  }

  @Test
  @DisplayName("patch-strategic")
  void patchStrategic() throws Exception {
    apps.createNamespacedDeployment(NAMESPACE, deployment("patched")).execute();
    V1Patch patch = new V1Patch(
        "{\"spec\": {\"template\": {\"spec\": {\"containers\": [{\"name\": \"sidecar\", \"image\": \"busybox\"}]}}}}");
    V1Deployment patched = patch(V1Deployment.class, V1Patch.PATCH_FORMAT_STRATEGIC_MERGE_PATCH,
        () -> apps.patchNamespacedDeployment("patched", NAMESPACE, patch).buildCall(null));
    assertEquals(2, patched.getSpec().getTemplate().getSpec().getContainers().size());
  }

  @Test
  @DisplayName("apply")
  void apply() throws Exception {
    GenericKubernetesApi<V1ConfigMap, V1ConfigMapList> maps =
        new GenericKubernetesApi<>(V1ConfigMap.class, V1ConfigMapList.class, "", "v1", "configmaps", client);
    interface Apply {
      V1ConfigMap run(String value, String manager, boolean force) throws ApiException;
    }
    Apply apply = (value, manager, force) -> {
      V1Patch patch = new V1Patch("""
          {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "%s"}}"""
          .formatted(value));
      PatchOptions options = new PatchOptions().fieldManager(manager).force(force);
      return maps.patch(NAMESPACE, "applied", V1Patch.PATCH_FORMAT_APPLY_YAML, patch, options)
          .throwsApiException().getObject();
    };
    V1ConfigMap first = apply.run("1", "one", false);
    V1ConfigMap again = apply.run("1", "one", false);
    assertEquals(first.getMetadata().getResourceVersion(), again.getMetadata().getResourceVersion());
    assertEquals(Map.of("a", "2"), apply.run("2", "one", false).getData());
    ApiException error = assertThrows(ApiException.class, () -> apply.run("3", "two", false));
    assertEquals(409, error.getCode());
    assertEquals(Map.of("a", "3"), apply.run("3", "two", true).getData());
  }

  @Test
  @DisplayName("informer-resumes")
  void informerResumes() throws Exception {
    SharedInformerFactory factory = new SharedInformerFactory(client);
    var informer = factory.sharedIndexInformerFor(
        (CallGeneratorParams params) -> core.listNamespacedConfigMap(NAMESPACE)
            .labelSelector("watched=yes")
            .resourceVersion(params.resourceVersion)
            .timeoutSeconds(params.timeoutSeconds)
            .watch(params.watch)
            .buildCall(null),
        V1ConfigMap.class, V1ConfigMapList.class);
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    informer.addEventHandler(new ResourceEventHandler<V1ConfigMap>() {
      @Override
      public void onAdd(V1ConfigMap map) {
        seen.add("add " + map.getMetadata().getName() + " " + map.getData().get("a"));
      }

      @Override
      public void onUpdate(V1ConfigMap old, V1ConfigMap map) {
        // A list after a lost connection repeats what has not changed.
        if (!old.getData().equals(map.getData())) {
          seen.add("update " + map.getMetadata().getName() + " " + map.getData().get("a"));
        }
      }

      @Override
      public void onDelete(V1ConfigMap map, boolean unknown) {
        seen.add("delete " + map.getMetadata().getName());
      }
    });
    V1ConfigMap first = configMap("first", Map.of("a", "1"));
    first.getMetadata().setLabels(Map.of("watched", "yes"));
    core.createNamespacedConfigMap(NAMESPACE, first).execute();
    factory.startAllRegisteredInformers();
    until("the informer has listed", () -> seen.contains("add first 1"));
    cutConnections();
    first.getMetadata().setName("second");
    core.createNamespacedConfigMap(NAMESPACE, first).execute();
    patched("first", V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH, "{\"data\": {\"a\": \"2\"}}");
    until("the changes are seen", () -> seen.containsAll(List.of("add second 1", "update first 2")));
    cutConnections();
    core.deleteNamespacedConfigMap("second", NAMESPACE).execute();
    until("the deletion is seen", () -> seen.contains("delete second"));
    factory.stopAllRegisteredInformers();
    assertEquals(Set.of("add first 1", "add second 1", "update first 2", "delete second"), new HashSet<>(seen));
    assertEquals(4, seen.size(), seen.toString());
  }

  @Test
  @DisplayName("paging")
  void paging() throws Exception {
    for (int index = 0; index < 5; index++) {
      V1ConfigMap map = configMap("page-" + index, Map.of());
      map.getMetadata().setLabels(Map.of("paged", "yes"));
      core.createNamespacedConfigMap(NAMESPACE, map).execute();
    }
    List<Integer> sizes = new ArrayList<>();
    String token = null;
    do {
      V1ConfigMapList page = core.listNamespacedConfigMap(NAMESPACE)
          .labelSelector("paged=yes").limit(2)._continue(token).execute();
      sizes.add(page.getItems().size());
      token = page.getMetadata().getContinue();
    } while (token != null && !token.isEmpty());
    assertEquals(List.of(2, 2, 1), sizes);
  }

  @Test
  @DisplayName("leader-election")
  void leaderElection() throws Exception {
    LeaseLock lock = new LeaseLock(NAMESPACE, "election", "candidate", client);
    LeaderElectionConfig config =
        new LeaderElectionConfig(lock, Duration.ofSeconds(3), Duration.ofSeconds(2), Duration.ofMillis(500));
    CountDownLatch leading = new CountDownLatch(1);
    AtomicBoolean lost = new AtomicBoolean();
    CoordinationV1Api leases = new CoordinationV1Api(client);
    try (LeaderElector elector = new LeaderElector(config)) {
      Thread thread = new Thread(() -> elector.run(leading::countDown, () -> lost.set(true)));
      thread.setDaemon(true);
      thread.start();
      assertTrue(leading.await(10, TimeUnit.SECONDS));
      Set<Object> renewals = new HashSet<>();
      until("the leader has renewed its lease for longer than it lasts", () -> {
        assertFalse(lost.get(), "the lease is lost");
        renewals.add(leases.readNamespacedLease("election", NAMESPACE).execute().getSpec().getRenewTime());
        return renewals.size() > 9;
      });
    }
  }

  @Test
  @DisplayName("logs")
  void logs() throws Exception {
    core.createNamespacedPod(NAMESPACE, pod("logger", "echo one; echo two")).execute();
    until("the pod has ended",
        () -> "Succeeded".equals(core.readNamespacedPod("logger", NAMESPACE).execute().getStatus().getPhase()));
    assertEquals("one\ntwo\n", core.readNamespacedPodLog("logger", NAMESPACE).execute());
    assertEquals("two\n", core.readNamespacedPodLog("logger", NAMESPACE).tailLines(1).execute());
  }

  @Test
  @DisplayName("logs-followed")
  void logsFollowed() throws Exception {
    core.createNamespacedPod(NAMESPACE, pod("talker", "for i in 1 2 3; do echo $i; sleep 0.2; done")).execute();
    until("the pod has started", () -> List.of("Running", "Succeeded")
        .contains(core.readNamespacedPod("talker", NAMESPACE).execute().getStatus().getPhase()));
    try (InputStream log = new PodLogs(client).streamNamespacedPodLog(NAMESPACE, "talker", "main")) {
      assertEquals("1\n2\n3\n", new String(log.readAllBytes(), StandardCharsets.UTF_8));
    }
  }

  @Test
  @DisplayName("scale")
  void scale() throws Exception {
    apps.createNamespacedDeployment(NAMESPACE, deployment("scaled")).execute();
    V1Patch patch = new V1Patch("{\"spec\": {\"replicas\": 1}}");
    patch(V1Scale.class, V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH,
        () -> apps.patchNamespacedDeploymentScale("scaled", NAMESPACE, patch).buildCall(null));
    until("one replica is ready", () -> Integer.valueOf(1)
        .equals(apps.readNamespacedDeployment("scaled", NAMESPACE).execute().getStatus().getReadyReplicas()));
    V1Scale scale = apps.readNamespacedDeploymentScale("scaled", NAMESPACE).execute();
    assertEquals("app=scaled", scale.getStatus().getSelector());
    assertEquals(1, scale.getStatus().getReplicas());
    scale.getSpec().setReplicas(0);
    // The Deployment controller writes the status at any time.
    scale.getMetadata().setResourceVersion(null);
    scale = apps.replaceNamespacedDeploymentScale("scaled", NAMESPACE, scale).execute();
    assertTrue(scale.getSpec().getReplicas() == null || scale.getSpec().getReplicas() == 0);
  }

  /** Evicts a pod, and returns the code. The server answers a Status, which the client doesn't read as an Eviction. */
  private static int evict(String name) throws Exception {
    V1Eviction eviction = new V1Eviction().metadata(new V1ObjectMeta().name(name).namespace(NAMESPACE));
    try (var response = core.createNamespacedPodEviction(name, NAMESPACE, eviction).buildCall(null).execute()) {
      return response.code();
    }
  }

  @Test
  @DisplayName("eviction")
  void evicts() throws Exception {
    core.createNamespacedPod(NAMESPACE, pod("evicted", "sleep 1000")).execute();
    assertEquals(201, evict("evicted"));
    until("the pod is gone", () -> core.listNamespacedPod(NAMESPACE)
        .fieldSelector("metadata.name=evicted").execute().getItems().isEmpty());
  }

  @Test
  @DisplayName("eviction-is-refused-by-a-budget")
  void evictionIsRefusedByABudget() throws Exception {
    core.createNamespacedPod(NAMESPACE, pod("guarded", "sleep 1000")).execute();
    V1PodDisruptionBudget budget = Yaml.loadAs("""
        metadata: {name: guarded}
        spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
        """, V1PodDisruptionBudget.class);
    new PolicyV1Api(client).createNamespacedPodDisruptionBudget(NAMESPACE, budget).execute();
    until("the pod runs",
        () -> "Running".equals(core.readNamespacedPod("guarded", NAMESPACE).execute().getStatus().getPhase()));
    assertEquals(429, evict("guarded"));
  }

  @Test
  @DisplayName("token")
  void token() throws Exception {
    V1ServiceAccount account = new V1ServiceAccount().metadata(new V1ObjectMeta().name("robot"));
    core.createNamespacedServiceAccount(NAMESPACE, account).execute();
    AuthenticationV1TokenRequest request = new AuthenticationV1TokenRequest()
        .spec(new V1TokenRequestSpec().audiences(List.of()).expirationSeconds(600L));
    String token = core.createNamespacedServiceAccountToken("robot", NAMESPACE, request).execute().getStatus().getToken();
    ApiClient robot = withToken(token);
    V1SelfSubjectReview review =
        new AuthenticationV1Api(robot).createSelfSubjectReview(new V1SelfSubjectReview()).execute();
    String name = "system:serviceaccount:" + NAMESPACE + ":robot";
    assertEquals(name, review.getStatus().getUserInfo().getUsername());
    refused(403, "Forbidden", () -> new CoreV1Api(robot).listNamespacedSecret(NAMESPACE).execute());
    ApiClient nobody = withToken("x");
    refused(401, "Unauthorized", () -> new CoreV1Api(nobody).listNamespacedPod(NAMESPACE).execute());
  }

  private static ApiClient withToken(String token) throws Exception {
    ApiClient anonymous = new ClientBuilder().setBasePath(client.getBasePath()).setVerifyingSsl(false).build();
    anonymous.setApiKeyPrefix("Bearer");
    anonymous.setApiKey(token);
    return anonymous;
  }

  @Test
  @DisplayName("errors")
  void errors() throws Exception {
    refused(404, "NotFound", () -> core.readNamespacedConfigMap("absent", NAMESPACE).execute());
    V1ConfigMap created =
        core.createNamespacedConfigMap(NAMESPACE, configMap("errors", Map.of("a", "1"))).execute();
    refused(409, "AlreadyExists",
        () -> core.createNamespacedConfigMap(NAMESPACE, configMap("errors", Map.of())).execute());
    patched("errors", V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH, "{\"data\": {\"a\": \"2\"}}");
    refused(409, "Conflict", () -> core.replaceNamespacedConfigMap("errors", NAMESPACE, created).execute());
    JsonObject status = refused(422, "Invalid",
        () -> core.createNamespacedConfigMap(NAMESPACE, configMap("No_Name", Map.of())).execute());
    JsonObject cause = status.getAsJsonObject("details").getAsJsonArray("causes").get(0).getAsJsonObject();
    assertEquals("metadata.name", cause.get("field").getAsString());
  }

  @Test
  @DisplayName("deletion-answers")
  void deletionAnswers() throws Exception {
    core.createNamespacedPod(NAMESPACE, pod("deleted", "sleep 1000")).execute();
    assertEquals("deleted", core.deleteNamespacedPod("deleted", NAMESPACE).execute().getMetadata().getName());
    core.createNamespacedConfigMap(NAMESPACE, configMap("deleted", Map.of())).execute();
    V1Status status = core.deleteNamespacedConfigMap("deleted", NAMESPACE).execute();
    assertEquals("Success", status.getStatus());
  }

  @Test
  @DisplayName("version")
  void version() throws Exception {
    var version = new VersionApi(client).getCode().execute();
    assertEquals("1.36", version.getMajor() + "." + version.getMinor());
  }
}
