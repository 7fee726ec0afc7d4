// Command webhook-go validates PodSets on the webhook server of controller-runtime. It needs no cluster: the certificate
// (tls.crt and tls.key) is in a folder, and the benchmark sends the reviews.
package main

import (
	"context"
	"flag"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"kubewright.example/bench/controller-runtime/api"
)

func main() {
	certificates := flag.String("certificates", "", "folder with tls.crt and tls.key")
	port := flag.Int("port", 9443, "port on loopback")
	flag.Parse()
	api.Main(func() error { return run(*certificates, *port) })
}

func run(certificates string, port int) error {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return err
	}
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certificates})
	manager, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme:        scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: server,
	})
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(manager, &api.PodSet{}).WithValidator(validator{}).Complete(); err != nil {
		return fmt.Errorf("make a webhook: %w", err)
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// validator allows one to ten pods, and names that pods can be named after.
type validator struct{}

func (validator) ValidateCreate(_ context.Context, set *api.PodSet) (admission.Warnings, error) {
	return nil, validate(set)
}

func (validator) ValidateUpdate(_ context.Context, _, set *api.PodSet) (admission.Warnings, error) {
	return nil, validate(set)
}

func (validator) ValidateDelete(context.Context, *api.PodSet) (admission.Warnings, error) {
	return nil, nil
}

func validate(set *api.PodSet) error {
	var errors field.ErrorList
	if replicas := set.Spec.Replicas; replicas < 1 || replicas > 10 {
		errors = append(errors, field.Invalid(field.NewPath("spec", "replicas"), replicas, "must be between 1 and 10"))
	}
	if len(set.Name) > 58 {
		errors = append(errors, field.TooLong(field.NewPath("metadata", "name"), set.Name, 58))
	}
	if len(errors) == 0 {
		return nil
	}
	return apierrors.NewInvalid(api.GroupVersion.WithKind("PodSet").GroupKind(), set.Name, errors)
}
