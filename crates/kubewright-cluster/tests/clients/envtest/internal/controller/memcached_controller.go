// Package controller has the controller of Memcached.
package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1 "example.com/envtest/api/v1"
)

// MemcachedReconciler keeps a Deployment for each Memcached.
type MemcachedReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// Reconcile creates the Deployment, and copies its ready replicas.
func (r *MemcachedReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	memcached := &cachev1.Memcached{}
	if err := r.Get(ctx, req.NamespacedName, memcached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deployment := &appsv1.Deployment{}
	err := r.Get(ctx, req.NamespacedName, deployment)
	if errors.IsNotFound(err) {
		labels := map[string]string{"app": memcached.Name}
		deployment = &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: memcached.Name, Namespace: memcached.Namespace},
			Spec: appsv1.DeploymentSpec{
				Replicas: &memcached.Spec.Size,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "memcached", Image: "memcached:1.6"}}},
				},
			},
		}
		if err := ctrl.SetControllerReference(memcached, deployment, r.Scheme); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.Create(ctx, deployment)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if *deployment.Spec.Replicas != memcached.Spec.Size {
		deployment.Spec.Replicas = &memcached.Spec.Size
		return ctrl.Result{}, r.Update(ctx, deployment)
	}
	if memcached.Status.ReadyReplicas != deployment.Status.ReadyReplicas {
		memcached.Status.ReadyReplicas = deployment.Status.ReadyReplicas
		return ctrl.Result{}, r.Status().Update(ctx, memcached)
	}
	return ctrl.Result{}, nil
}

// SetupWithManager registers the controller.
func (r *MemcachedReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&cachev1.Memcached{}).Owns(&appsv1.Deployment{}).Complete(r)
}
