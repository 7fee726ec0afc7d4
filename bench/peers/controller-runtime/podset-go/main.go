// Command podset-go is the PodSet operator (app.example.com) on controller-runtime: the peer of operators/podset in the
// benchmark convergence.
//
// It behaves like operators/podset and bench/peers/podset-kube-rs. It follows what controller-runtime recommends: reads come
// from the manager's cache, children by an index on their owner, and a transform drops the managed fields before objects are
// kept. Before it creates pods it reads the PodSet and lists its pods from the API server, since the cache may not contain
// its own last writes. With --read-your-writes the client waits for them instead (new in controller-runtime 0.25), and the
// list is needed only before pods are deleted.
package main

import (
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"kubewright.example/bench/controller-runtime/api"
)

// workers is the number of concurrent reconciles, the same as in operators/podset.
const workers = 4

// ownerIndex is the name of the index of pods by the UID of their controller.
const ownerIndex = "controller-uid"

func main() {
	consistent := flag.Bool("read-your-writes", false, "let cached reads wait for the operator's own writes")
	flag.Parse()
	api.Main(func() error { return run(*consistent) })
}

func run(consistent bool) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Client:  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: &consistent}},
	})
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	context := ctrl.SetupSignalHandler()
	byOwner := func(object client.Object) []string {
		if owner := metav1.GetControllerOf(object); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	}
	if err := manager.GetFieldIndexer().IndexField(context, &corev1.Pod{}, ownerIndex, byOwner); err != nil {
		return fmt.Errorf("index pods by owner: %w", err)
	}
	// No predicate on generations: a status that someone has wiped is rebuilt, as in operators/podset.
	err = ctrl.NewControllerManagedBy(manager).
		For(&api.PodSet{}).
		Owns(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{cached: manager.GetClient(), live: manager.GetAPIReader(), scheme: scheme, consistent: consistent})
	if err != nil {
		return fmt.Errorf("make a controller: %w", err)
	}
	return manager.Start(context)
}
