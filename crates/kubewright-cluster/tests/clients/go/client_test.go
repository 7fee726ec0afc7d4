// Package clients tests client-go against the cluster of KUBECONFIG.
package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

const (
	namespace = "go"
	group     = "go.clients.example.com"
)

var (
	config *rest.Config
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	var err error
	config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	config.QPS = -1
	client = kubernetes.NewForConfigOrDie(config)
	spec := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(context.Background(), spec, metav1.CreateOptions{}); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// report prints one line for the test when it ends.
func report(t *testing.T, name string) {
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Printf("FAIL go %s\n", name)
		} else {
			fmt.Printf("ok go %s\n", name)
		}
	})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func equal[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("found %v, expected %v", found, expected)
	}
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("timed out waiting until %s", what)
}

// cutConnections closes all connections between clients and the API server.
func cutConnections(t *testing.T) {
	t.Helper()
	answer := must[*http.Response](t)(http.Get(os.Getenv("KUBEWRIGHT_CUT")))
	_ = answer.Body.Close()
	// Requests that write aren't repeated on a new connection.
	until(t, "the client connects again", func() bool {
		_, err := client.Discovery().ServerVersion()
		return err == nil
	})
}

func refused(t *testing.T, err error, code int32, reason metav1.StatusReason) metav1.Status {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("expected %s, found %v", reason, err)
	}
	equal(t, status.Status().Code, code)
	equal(t, status.Status().Reason, reason)
	return status.Status()
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func createConfigMap(t *testing.T, name string, data map[string]string, labels map[string]string) *corev1.ConfigMap {
	t.Helper()
	object := configMap(name, data)
	object.Labels = labels
	return must[*corev1.ConfigMap](t)(
		client.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}))
}

func patchConfigMap(t *testing.T, name string, format types.PatchType, patch string) *corev1.ConfigMap {
	t.Helper()
	maps := client.CoreV1().ConfigMaps(namespace)
	return must[*corev1.ConfigMap](t)(maps.Patch(t.Context(), name, format, []byte(patch), metav1.PatchOptions{}))
}

func createPod(t *testing.T, name, script string) {
	t.Helper()
	grace := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{
				{Name: "main", Image: "busybox", Command: []string{"sh", "-c", script}},
			},
		},
	}
	must[*corev1.Pod](t)(client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}))
}

func phase(t *testing.T, name string) corev1.PodPhase {
	t.Helper()
	pod := must[*corev1.Pod](t)(client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}))
	return pod.Status.Phase
}

func createDeployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	none, grace := int32(0), int64(0)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &none,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{
						{Name: "main", Image: "busybox", Command: []string{"sleep", "1000"}},
					},
				},
			},
		},
	}
	deployments := client.AppsV1().Deployments(namespace)
	return must[*appsv1.Deployment](t)(deployments.Create(t.Context(), deployment, metav1.CreateOptions{}))
}

func TestReplaceBuiltin(t *testing.T) {
	report(t, "replace-builtin")
	maps := client.CoreV1().ConfigMaps(namespace)
	createConfigMap(t, "replaced", map[string]string{"a": "1"}, nil)
	found := must[*corev1.ConfigMap](t)(maps.Get(t.Context(), "replaced", metav1.GetOptions{}))
	found.Data["a"] = "2"
	replaced := must[*corev1.ConfigMap](t)(maps.Update(t.Context(), found, metav1.UpdateOptions{}))
	equal(t, replaced.Data["a"], "2")

	// Go writes the zero values of its structs.
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "replaced"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	services := client.CoreV1().Services(namespace)
	created := must[*corev1.Service](t)(services.Create(t.Context(), service, metav1.CreateOptions{}))
	equal(t, created.Spec.Ports[0].TargetPort, intstr.FromInt32(80))
	created.Labels = map[string]string{"tier": "web"}
	changed := must[*corev1.Service](t)(services.Update(t.Context(), created, metav1.UpdateOptions{}))
	equal(t, changed.Labels["tier"], "web")
}

func TestReplaceCustom(t *testing.T) {
	report(t, "replace-custom")
	preserve := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &preserve,
					},
				},
			}},
		},
	}
	definitions := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	must[*apiextensionsv1.CustomResourceDefinition](t)(
		definitions.Create(t.Context(), definition, metav1.CreateOptions{}))
	until(t, "the kind is established", func() bool {
		found := must[*apiextensionsv1.CustomResourceDefinition](t)(
			definitions.Get(t.Context(), definition.Name, metav1.GetOptions{}))
		return slices.ContainsFunc(found.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
	})
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	widgets := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(namespace)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "one"},
		"spec":     map[string]any{"size": int64(1)},
	}}
	must[*unstructured.Unstructured](t)(widgets.Create(t.Context(), widget, metav1.CreateOptions{}))
	found := must[*unstructured.Unstructured](t)(widgets.Get(t.Context(), "one", metav1.GetOptions{}))
	found.Object["spec"] = map[string]any{"size": int64(2)}
	replaced := must[*unstructured.Unstructured](t)(widgets.Update(t.Context(), found, metav1.UpdateOptions{}))
	equal(t, replaced.GetGeneration(), 2)
}

func TestStatusOfANewObject(t *testing.T) {
	report(t, "status-of-a-new-object")
	createDeployment(t, "fresh")
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	deployments := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(namespace)
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	found := must[*unstructured.Unstructured](t)(deployments.Get(t.Context(), "fresh", metav1.GetOptions{}))
	fresh := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "dry"},
		"spec": found.Object["spec"],
	}}
	created := must[*unstructured.Unstructured](t)(deployments.Create(t.Context(), fresh, options))
	_, has := created.Object["status"]
	equal(t, has, true)
}

func TestPatchJSON(t *testing.T) {
	report(t, "patch-json")
	createConfigMap(t, "patched-json", map[string]string{"a": "1", "b": "1"}, nil)
	patch := `[{"op": "test", "path": "/data/a", "value": "1"},
		{"op": "replace", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/b"}]`
	patched := patchConfigMap(t, "patched-json", types.JSONPatchType, patch)
	equal(t, fmt.Sprint(patched.Data), "map[a:2]")
}

func TestPatchMerge(t *testing.T) {
	report(t, "patch-merge")
	createConfigMap(t, "patched-merge", map[string]string{"a": "1", "b": "1"}, nil)
	patched := patchConfigMap(t, "patched-merge", types.MergePatchType, `{"data": {"a": "2", "b": null}}`)
	equal(t, fmt.Sprint(patched.Data), "map[a:2]")
}

func TestPatchStrategic(t *testing.T) {
	report(t, "patch-strategic")
	createDeployment(t, "patched")
	patch := `{"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "busybox"}]}}}}`
	deployments := client.AppsV1().Deployments(namespace)
	patched := must[*appsv1.Deployment](t)(
		deployments.Patch(t.Context(), "patched", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}))
	equal(t, len(patched.Spec.Template.Spec.Containers), 2)
}

func TestApply(t *testing.T) {
	report(t, "apply")
	maps := client.CoreV1().ConfigMaps(namespace)
	apply := func(value, manager string, force bool) (*corev1.ConfigMap, error) {
		object := applycorev1.ConfigMap("applied", namespace).WithData(map[string]string{"a": value})
		return maps.Apply(t.Context(), object, metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	first := must[*corev1.ConfigMap](t)(apply("1", "one", false))
	again := must[*corev1.ConfigMap](t)(apply("1", "one", false))
	equal(t, first.ResourceVersion, again.ResourceVersion)
	equal(t, must[*corev1.ConfigMap](t)(apply("2", "one", false)).Data["a"], "2")
	_, err := apply("3", "two", false)
	status := refused(t, err, 409, metav1.StatusReasonConflict)
	equal(t, status.Details.Causes[0].Type, metav1.CauseTypeFieldManagerConflict)
	equal(t, must[*corev1.ConfigMap](t)(apply("3", "two", true)).Data["a"], "3")
}

func TestInformerResumes(t *testing.T) {
	report(t, "informer-resumes")
	labels := map[string]string{"watched": "yes"}
	filter := func(options *metav1.ListOptions) { options.LabelSelector = "watched=yes" }
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(
		dynamic.NewForConfigOrDie(config), 0, namespace, filter)
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer()
	var lock sync.Mutex
	var seen []string
	note := func(event string, object any) {
		lock.Lock()
		defer lock.Unlock()
		// The deletion may be found by a list after the connection was lost.
		if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
			object = unknown.Obj
		}
		found := object.(*unstructured.Unstructured)
		value, _, _ := unstructured.NestedString(found.Object, "data", "a")
		seen = append(seen, fmt.Sprintf("%s %s %s", event, found.GetName(), value))
	}
	has := func(line string) func() bool {
		return func() bool {
			lock.Lock()
			defer lock.Unlock()
			return slices.Contains(seen, line)
		}
	}
	must[cache.ResourceEventHandlerRegistration](t)(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { note("add", object) },
		UpdateFunc: func(old, object any) {
			// A list after a lost connection repeats what has not changed.
			before, after := old.(metav1.Object), object.(metav1.Object)
			if before.GetResourceVersion() != after.GetResourceVersion() {
				note("update", object)
			}
		},
		DeleteFunc: func(object any) { note("delete", object) },
	}))
	createConfigMap(t, "first", map[string]string{"a": "1"}, labels)
	factory.Start(t.Context().Done())
	until(t, "the informer has listed", has("add first 1"))
	cutConnections(t)
	createConfigMap(t, "second", map[string]string{"a": "1"}, labels)
	patchConfigMap(t, "first", types.MergePatchType, `{"data": {"a": "2"}}`)
	until(t, "the change is seen", has("update first 2"))
	cutConnections(t)
	if err := client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the deletion is seen", has("delete second 1"))
	// A list finds changes in another order than a watch.
	slices.Sort(seen)
	expected := "add first 1, add second 1, delete second 1, update first 2"
	equal(t, strings.Join(seen, ", "), expected)
}

func TestWatchResumes(t *testing.T) {
	report(t, "watch-resumes")
	maps := client.CoreV1().ConfigMaps(namespace)
	list := must[*corev1.ConfigMapList](t)(maps.List(t.Context(), metav1.ListOptions{}))
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
		return maps.Watch(ctx, options)
	}}
	watcher := must[*watch.RetryWatcher](t)(
		watch.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, source))
	defer watcher.Stop()
	createConfigMap(t, "watched-1", nil, nil)
	equal(t, (<-watcher.ResultChan()).Object.(*corev1.ConfigMap).Name, "watched-1")
	cutConnections(t)
	createConfigMap(t, "watched-2", nil, nil)
	equal(t, (<-watcher.ResultChan()).Object.(*corev1.ConfigMap).Name, "watched-2")
}

func TestPaging(t *testing.T) {
	report(t, "paging")
	for index := range 5 {
		createConfigMap(t, fmt.Sprintf("page-%d", index), nil, map[string]string{"paged": "yes"})
	}
	var sizes []int
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (apiruntime.Object, error) {
		page, err := client.CoreV1().ConfigMaps(namespace).List(ctx, options)
		sizes = append(sizes, len(page.Items))
		return page, err
	})
	pages.PageSize = 2
	count := 0
	err := pages.EachListItem(t.Context(), metav1.ListOptions{LabelSelector: "paged=yes"}, func(apiruntime.Object) error {
		count++
		return nil
	})
	equal(t, err, nil)
	equal(t, fmt.Sprint(sizes, count), "[2 2 1] 5")
}

func TestLeaderElection(t *testing.T) {
	report(t, "leader-election")
	ctx, cancel := context.WithCancel(t.Context())
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "election"},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "candidate"},
	}
	leading, lost := make(chan struct{}), make(chan struct{})
	go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 500 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leading) },
			OnStoppedLeading: func() { close(lost) },
		},
	})
	<-leading
	renewals := map[time.Time]bool{}
	until(t, "the leader has renewed its lease for longer than it lasts", func() bool {
		select {
		case <-lost:
			t.Fatal("the lease is lost")
		default:
		}
		record, _, err := lock.Get(t.Context())
		if err == nil {
			renewals[record.RenewTime.Time] = true
		}
		return len(renewals) > 9
	})
	cancel()
	<-lost
	record, _, err := lock.Get(t.Context())
	if err != nil || record.HolderIdentity != "" {
		t.Fatal("the lease is released: ", record, err)
	}
}

func TestLogs(t *testing.T) {
	report(t, "logs")
	createPod(t, "logger", "echo one; echo two")
	until(t, "the pod has ended", func() bool { return phase(t, "logger") == corev1.PodSucceeded })
	read := func(options corev1.PodLogOptions) string {
		request := client.CoreV1().Pods(namespace).GetLogs("logger", &options)
		return string(must[[]byte](t)(request.DoRaw(t.Context())))
	}
	last := int64(1)
	equal(t, read(corev1.PodLogOptions{}), "one\ntwo\n")
	equal(t, read(corev1.PodLogOptions{TailLines: &last}), "two\n")
}

func TestLogsFollowed(t *testing.T) {
	report(t, "logs-followed")
	createPod(t, "talker", "for i in 1 2 3; do echo $i; sleep 0.2; done")
	until(t, "the pod has started", func() bool { return phase(t, "talker") != corev1.PodPending })
	request := client.CoreV1().Pods(namespace).GetLogs("talker", &corev1.PodLogOptions{Follow: true})
	stream := must[io.ReadCloser](t)(request.Stream(t.Context()))
	defer stream.Close()
	equal(t, string(must[[]byte](t)(io.ReadAll(stream))), "1\n2\n3\n")
}

func TestScale(t *testing.T) {
	report(t, "scale")
	createDeployment(t, "scaled")
	deployments := client.AppsV1().Deployments(namespace)
	scaleTo(t, "scaled", 1)
	until(t, "one replica is ready", func() bool {
		found := must[*appsv1.Deployment](t)(deployments.Get(t.Context(), "scaled", metav1.GetOptions{}))
		return found.Status.ReadyReplicas == 1
	})
	scale := scaleTo(t, "scaled", 0)
	equal(t, scale.Status.Selector, "app=scaled")
	equal(t, scale.Spec.Replicas, 0)
}

// scaleTo scales a Deployment, whose controller may write its status meanwhile.
func scaleTo(t *testing.T, name string, replicas int32) (scale *autoscalingv1.Scale) {
	t.Helper()
	deployments := client.AppsV1().Deployments(namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		if scale, err = deployments.GetScale(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		scale, err = deployments.UpdateScale(t.Context(), name, scale, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return scale
}

func evict(t *testing.T, name string) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	return client.PolicyV1().Evictions(namespace).Evict(t.Context(), eviction)
}

func TestEviction(t *testing.T) {
	report(t, "eviction")
	createPod(t, "evicted", "sleep 1000")
	equal(t, evict(t, "evicted"), nil)
	until(t, "the pod is gone", func() bool {
		_, err := client.CoreV1().Pods(namespace).Get(t.Context(), "evicted", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestEvictionIsRefusedByABudget(t *testing.T) {
	report(t, "eviction-is-refused-by-a-budget")
	createPod(t, "guarded", "sleep 1000")
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guarded"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}},
		},
	}
	budgets := client.PolicyV1().PodDisruptionBudgets(namespace)
	must[*policyv1.PodDisruptionBudget](t)(budgets.Create(t.Context(), budget, metav1.CreateOptions{}))
	until(t, "the pod runs", func() bool { return phase(t, "guarded") == corev1.PodRunning })
	refused(t, evict(t, "guarded"), 429, metav1.StatusReasonTooManyRequests)
}

func TestToken(t *testing.T) {
	report(t, "token")
	accounts := client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	must[*corev1.ServiceAccount](t)(accounts.Create(t.Context(), account, metav1.CreateOptions{}))
	request := must[*authenticationv1.TokenRequest](t)(
		accounts.CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	withToken := func(token string) kubernetes.Interface {
		own := rest.AnonymousClientConfig(config)
		own.BearerToken = token
		return kubernetes.NewForConfigOrDie(own)
	}
	robot := withToken(request.Status.Token)
	review := must[*authenticationv1.SelfSubjectReview](t)(robot.AuthenticationV1().SelfSubjectReviews().Create(
		t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))
	equal(t, review.Status.UserInfo.Username, "system:serviceaccount:"+namespace+":robot")
	_, err := robot.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	refused(t, err, 403, metav1.StatusReasonForbidden)
	_, err = withToken("x").CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	refused(t, err, 401, metav1.StatusReasonUnauthorized)
}

func TestErrors(t *testing.T) {
	report(t, "errors")
	maps := client.CoreV1().ConfigMaps(namespace)
	_, err := maps.Get(t.Context(), "absent", metav1.GetOptions{})
	refused(t, err, 404, metav1.StatusReasonNotFound)
	created := createConfigMap(t, "errors", map[string]string{"a": "1"}, nil)
	_, err = maps.Create(t.Context(), configMap("errors", nil), metav1.CreateOptions{})
	refused(t, err, 409, metav1.StatusReasonAlreadyExists)
	patchConfigMap(t, "errors", types.MergePatchType, `{"data": {"a": "2"}}`)
	_, err = maps.Update(t.Context(), created, metav1.UpdateOptions{})
	refused(t, err, 409, metav1.StatusReasonConflict)
	_, err = maps.Create(t.Context(), configMap("No_Name", nil), metav1.CreateOptions{})
	status := refused(t, err, 422, metav1.StatusReasonInvalid)
	equal(t, status.Details.Causes[0].Field, "metadata.name")
}

// TestProtobuf reads what it wrote in protobuf, and compares it with what the client of JSON reads.
func TestProtobuf(t *testing.T) {
	report(t, "protobuf")
	other := rest.CopyConfig(config)
	other.ContentType = apiruntime.ContentTypeProtobuf
	other.AcceptContentTypes = apiruntime.ContentTypeProtobuf
	protobuf := kubernetes.NewForConfigOrDie(other)
	maps := protobuf.CoreV1().ConfigMaps(namespace)
	object := configMap("protobuf", map[string]string{"a": "1"})
	object.BinaryData = map[string][]byte{"b": {0, 255}}
	object.Labels = map[string]string{"protobuf": "yes"}
	created := must[*corev1.ConfigMap](t)(maps.Create(t.Context(), object, metav1.CreateOptions{}))
	expected := must[*corev1.ConfigMap](t)(
		client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "protobuf", metav1.GetOptions{}))
	equal(t, created.String(), expected.String())
	selection := metav1.ListOptions{LabelSelector: "protobuf=yes"}
	list := must[*corev1.ConfigMapList](t)(maps.List(t.Context(), selection))
	equal(t, len(list.Items), 1)
	equal(t, list.Items[0].String(), expected.String())
	selection.ResourceVersion = list.ResourceVersion
	events := must[apiwatch.Interface](t)(maps.Watch(t.Context(), selection))
	defer events.Stop()
	created.Data["a"] = "2"
	must[*corev1.ConfigMap](t)(maps.Update(t.Context(), created, metav1.UpdateOptions{}))
	event := <-events.ResultChan()
	equal(t, event.Type, apiwatch.Modified)
	equal(t, event.Object.(*corev1.ConfigMap).Data["a"], "2")
	_, err := maps.Get(t.Context(), "missing", metav1.GetOptions{})
	refused(t, err, 404, metav1.StatusReasonNotFound)
	services := must[*corev1.ServiceList](t)(protobuf.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{}))
	inJSON := must[*corev1.ServiceList](t)(client.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{}))
	equal(t, services.Items[0].String(), inJSON.Items[0].String())
}

func TestVersion(t *testing.T) {
	report(t, "version")
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, version.Major+"."+version.Minor, "1.36")
}
