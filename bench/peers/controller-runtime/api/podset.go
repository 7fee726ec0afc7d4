// Package api has the kind PodSet, as operators/podset installs it, and what all programs of this module share.
package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of PodSets.
var GroupVersion = schema.GroupVersion{Group: "app.example.com", Version: "v1alpha1"}

// PodSet keeps a number of pods alive.
type PodSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodSetSpec   `json:"spec"`
	Status PodSetStatus `json:"status,omitempty"`
}

// PodSetSpec has the desired number of pods.
type PodSetSpec struct {
	Replicas int32 `json:"replicas"`
}

// PodSetStatus is the last observed state.
type PodSetStatus struct {
	// PodNames has the names of the active pods, sorted.
	PodNames []string `json:"podNames"`
	// AvailableReplicas is the number of active pods.
	AvailableReplicas int32 `json:"availableReplicas"`
	// Selector is the label selector of the pods.
	Selector string `json:"selector,omitempty"`
	// ObservedGeneration is the observed generation of the spec.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has the condition Ready.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodSetList is a list of PodSets.
type PodSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodSet `json:"items"`
}

// AddToScheme registers the kind.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &PodSet{}, &PodSetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopyInto copies into another PodSet.
func (set *PodSet) DeepCopyInto(out *PodSet) {
	*out = *set
	set.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.PodNames = append([]string(nil), set.Status.PodNames...)
	out.Status.Conditions = nil
	for _, condition := range set.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *condition.DeepCopy())
	}
}

// DeepCopyObject returns a copy.
func (set *PodSet) DeepCopyObject() runtime.Object {
	out := &PodSet{}
	set.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy.
func (list *PodSetList) DeepCopyObject() runtime.Object {
	out := &PodSetList{TypeMeta: list.TypeMeta}
	list.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]PodSet, len(list.Items))
	for index := range list.Items {
		list.Items[index].DeepCopyInto(&out.Items[index])
	}
	return out
}
