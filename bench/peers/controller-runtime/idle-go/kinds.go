package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// custom is what all custom kinds have.
type custom struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   map[string]runtime.RawExtension `json:"spec,omitempty"`
	Status map[string]runtime.RawExtension `json:"status,omitempty"`
}

func (object *custom) copied() custom {
	out := custom{TypeMeta: object.TypeMeta, Spec: copied(object.Spec), Status: copied(object.Status)}
	object.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

func copied(fields map[string]runtime.RawExtension) map[string]runtime.RawExtension {
	out := make(map[string]runtime.RawExtension, len(fields))
	for name, value := range fields {
		out[name] = *value.DeepCopy()
	}
	return out
}

// list is a list of a custom kind.
type list[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []T `json:"items"`
}

func (all *list[T]) copied(copy func(*T) T) list[T] {
	out := list[T]{TypeMeta: all.TypeMeta, Items: make([]T, len(all.Items))}
	all.ListMeta.DeepCopyInto(&out.ListMeta)
	for index := range all.Items {
		out.Items[index] = copy(&all.Items[index])
	}
	return out
}

// The kinds of operators/at, cronjob, guestbook, lolcow, and the second one of podset. Kinds have to be named types.
type (
	At struct {
		custom `json:",inline"`
	}
	CronJob struct {
		custom `json:",inline"`
	}
	Guestbook struct {
		custom `json:",inline"`
	}
	Lolcow struct {
		custom `json:",inline"`
	}
	PodSet struct {
		custom `json:",inline"`
	}

	AtList struct {
		list[At] `json:",inline"`
	}
	CronJobList struct {
		list[CronJob] `json:",inline"`
	}
	GuestbookList struct {
		list[Guestbook] `json:",inline"`
	}
	LolcowList struct {
		list[Lolcow] `json:",inline"`
	}
	PodSetList struct {
		list[PodSet] `json:",inline"`
	}
)

func (object *At) DeepCopyObject() runtime.Object        { return &At{object.copied()} }
func (object *CronJob) DeepCopyObject() runtime.Object   { return &CronJob{object.copied()} }
func (object *Guestbook) DeepCopyObject() runtime.Object { return &Guestbook{object.copied()} }
func (object *Lolcow) DeepCopyObject() runtime.Object    { return &Lolcow{object.copied()} }
func (object *PodSet) DeepCopyObject() runtime.Object    { return &PodSet{object.copied()} }

func (all *AtList) DeepCopyObject() runtime.Object {
	return &AtList{all.copied(func(one *At) At { return At{one.copied()} })}
}
func (all *CronJobList) DeepCopyObject() runtime.Object {
	return &CronJobList{all.copied(func(one *CronJob) CronJob { return CronJob{one.copied()} })}
}
func (all *GuestbookList) DeepCopyObject() runtime.Object {
	return &GuestbookList{all.copied(func(one *Guestbook) Guestbook { return Guestbook{one.copied()} })}
}
func (all *LolcowList) DeepCopyObject() runtime.Object {
	return &LolcowList{all.copied(func(one *Lolcow) Lolcow { return Lolcow{one.copied()} })}
}
func (all *PodSetList) DeepCopyObject() runtime.Object {
	return &PodSetList{all.copied(func(one *PodSet) PodSet { return PodSet{one.copied()} })}
}

func addToScheme(scheme *runtime.Scheme) error {
	for _, each := range []struct {
		version schema.GroupVersion
		types   []runtime.Object
	}{
		{schema.GroupVersion{Group: "cnat.d2iq.com", Version: "v1alpha1"}, []runtime.Object{&At{}, &AtList{}}},
		{schema.GroupVersion{Group: "batch.tutorial.kubebuilder.io", Version: "v1"}, []runtime.Object{&CronJob{}, &CronJobList{}}},
		{schema.GroupVersion{Group: "webapp.my.domain", Version: "v1"}, []runtime.Object{&Guestbook{}, &GuestbookList{}}},
		{schema.GroupVersion{Group: "my.domain", Version: "v1alpha1"}, []runtime.Object{&Lolcow{}, &LolcowList{}}},
		{schema.GroupVersion{Group: "k8stest.justin0u0.com", Version: "v1alpha1"}, []runtime.Object{&PodSet{}, &PodSetList{}}},
	} {
		scheme.AddKnownTypes(each.version, each.types...)
		metav1.AddToGroupVersion(scheme, each.version)
	}
	return nil
}
