// Command idle-go is a manager of controller-runtime that has nothing to do, with the controllers and kinds of
// bench/five-operators: six controllers, eleven kinds watched.
package main

import (
	"context"
	"flag"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"kubewright.example/bench/controller-runtime/api"
)

func main() {
	flag.Parse()
	api.Main(run)
}

func run() error {
	scheme := runtime.NewScheme()
	adds := []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, api.AddToScheme, addToScheme,
	}
	for _, add := range adds {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "127.0.0.1:0",
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	controllers := []struct {
		name    string
		primary client.Object
		owned   []client.Object
		watched []client.Object
	}{
		{"at", &At{}, []client.Object{&corev1.Pod{}}, nil},
		{"cronjob", &CronJob{}, []client.Object{&batchv1.Job{}}, nil},
		{"guestbook", &Guestbook{}, []client.Object{&corev1.Pod{}}, []client.Object{&corev1.Service{}, &corev1.ConfigMap{}}},
		{"lolcow", &Lolcow{}, []client.Object{&appsv1.Deployment{}, &corev1.Service{}}, nil},
		{"podset-app", &api.PodSet{}, []client.Object{&corev1.Pod{}}, nil},
		{"podset-k8stest", &PodSet{}, []client.Object{&corev1.Pod{}}, nil},
	}
	// The object of the same name.
	same := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
	})
	for _, each := range controllers {
		builder := ctrl.NewControllerManagedBy(manager).Named(each.name).For(each.primary)
		for _, kind := range each.owned {
			builder = builder.Owns(kind)
		}
		for _, kind := range each.watched {
			builder = builder.Watches(kind, same)
		}
		reads := &reader{cached: manager.GetClient(), kind: each.primary}
		if err := builder.Complete(reads); err != nil {
			return fmt.Errorf("make the controller %s: %w", each.name, err)
		}
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// reader reads the object from the cache.
type reader struct {
	cached client.Client
	kind   client.Object
}

func (r *reader) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := r.kind.DeepCopyObject().(client.Object)
	return ctrl.Result{}, client.IgnoreNotFound(r.cached.Get(ctx, request.NamespacedName, object))
}
