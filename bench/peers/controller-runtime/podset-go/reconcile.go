package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kubewright.example/bench/controller-runtime/api"
)

type reconciler struct {
	cached     client.Client
	live       client.Reader
	scheme     *runtime.Scheme
	consistent bool
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	set := &api.PodSet{}
	if err := r.cached.Get(ctx, request.NamespacedName, set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if set.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	pods := &corev1.PodList{}
	owned := client.MatchingFields{ownerIndex: string(set.UID)}
	if err := r.cached.List(ctx, pods, client.InNamespace(set.Namespace), owned); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the cached pods: %w", err)
	}
	active := activeChildren(pods, set)
	if len(active) != int(set.Spec.Replicas) {
		if !r.consistent || len(active) > int(set.Spec.Replicas) {
			var current bool
			var err error
			if active, current, err = r.read(ctx, set); err != nil {
				return ctrl.Result{}, err
			}
			if !current {
				// The cache is behind; the event that it is waiting for triggers the next reconcile.
				return ctrl.Result{RequeueAfter: time.Second}, nil
			}
		}
		var err error
		if active, err = r.act(ctx, set, active); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.tell(ctx, set, active)
}

// read returns the active pods according to the API server, and whether the PodSet is still the same there.
func (r *reconciler) read(ctx context.Context, set *api.PodSet) ([]corev1.Pod, bool, error) {
	now := &api.PodSet{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(set), now); err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	if now.UID != set.UID || now.Generation != set.Generation || now.DeletionTimestamp != nil {
		return nil, false, nil
	}
	pods := &corev1.PodList{}
	if err := r.live.List(ctx, pods, client.InNamespace(set.Namespace), client.MatchingLabels(labels(set))); err != nil {
		return nil, false, fmt.Errorf("list the pods: %w", err)
	}
	return activeChildren(pods, set), true, nil
}

// act creates missing pods and deletes superfluous ones, and returns those that are left.
func (r *reconciler) act(ctx context.Context, set *api.PodSet, active []corev1.Pod) ([]corev1.Pod, error) {
	slices.SortFunc(active, func(one, other corev1.Pod) int {
		if isReady(&one) != isReady(&other) {
			if isReady(&one) {
				return -1
			}
			return 1
		}
		if order := one.CreationTimestamp.Compare(other.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(one.Name, other.Name)
	})
	desired := int(set.Spec.Replicas)
	for len(active) > desired {
		pod := active[len(active)-1]
		conditions := client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
		if err := r.cached.Delete(ctx, &pod, conditions); err != nil {
			return nil, fmt.Errorf("delete the pod %s: %w", pod.Name, err)
		}
		active = active[:len(active)-1]
	}
	for batch := 1; len(active) < desired; batch *= 2 {
		created, err := r.create(ctx, set, min(batch, desired-len(active)))
		if err != nil {
			return nil, err
		}
		active = append(active, created...)
	}
	return active, nil
}

// create creates this number of pods at the same time.
func (r *reconciler) create(ctx context.Context, set *api.PodSet, count int) ([]corev1.Pod, error) {
	pods, errors := make([]corev1.Pod, count), make([]error, count)
	var creates sync.WaitGroup
	for index := range count {
		creates.Go(func() {
			pod := &pods[index]
			prefix := set.Name + "-pod"
			pod.ObjectMeta = metav1.ObjectMeta{
				Name:         prefix + rand.String(5),
				GenerateName: prefix,
				Namespace:    set.Namespace,
				Labels:       labels(set),
			}
			pod.Spec.Containers = []corev1.Container{{Name: "busybox", Image: "busybox", Command: []string{"sleep", "3600"}}}
			if errors[index] = ctrl.SetControllerReference(set, pod, r.scheme); errors[index] == nil {
				errors[index] = r.cached.Create(ctx, pod)
			}
		})
	}
	creates.Wait()
	for _, err := range errors {
		if err != nil {
			return nil, fmt.Errorf("create a pod: %w", err)
		}
	}
	return pods, nil
}

// tell writes the status if it differs.
func (r *reconciler) tell(ctx context.Context, set *api.PodSet, active []corev1.Pod) error {
	names, ready, desired := make([]string, 0, len(active)), 0, int(set.Spec.Replicas)
	for index := range active {
		names = append(names, active[index].Name)
		if isReady(&active[index]) {
			ready++
		}
	}
	slices.Sort(names)
	condition := metav1.Condition{
		Type:               "Ready",
		Status:             metav1.ConditionFalse,
		Reason:             "PodsNotReady",
		Message:            fmt.Sprintf("%d of %d pods are ready", ready, desired),
		ObservedGeneration: set.Generation,
	}
	if ready == desired {
		condition.Status, condition.Reason = metav1.ConditionTrue, "PodsReady"
	}
	conditions := set.DeepCopyObject().(*api.PodSet).Status.Conditions
	apimeta.SetStatusCondition(&conditions, condition)
	status := api.PodSetStatus{
		PodNames:           names,
		AvailableReplicas:  int32(len(names)),
		Selector:           fmt.Sprintf("app=%s,version=v0.1", set.Name),
		ObservedGeneration: set.Generation,
		Conditions:         conditions,
	}
	if equality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": set.UID}, "status": status})
	if err != nil {
		return err
	}
	return r.cached.Status().Patch(ctx, set, client.RawPatch(types.MergePatchType, patch))
}

func labels(set *api.PodSet) map[string]string {
	return map[string]string{"app": set.Name, "version": "v0.1"}
}

func activeChildren(pods *corev1.PodList, set *api.PodSet) []corev1.Pod {
	var active []corev1.Pod
	for _, pod := range pods.Items {
		lives := pod.Status.Phase == "" || pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning
		if metav1.IsControlledBy(&pod, set) && pod.DeletionTimestamp == nil && lives {
			active = append(active, pod)
		}
	}
	return active
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
