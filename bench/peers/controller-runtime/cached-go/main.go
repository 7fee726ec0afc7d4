// Command cached-go fills the informer of a controller-runtime cache with the pods of an API server, and prints their number
// and two growths of the resident memory, in bytes: right after the list, and after the memory that Go can spare has been
// given back.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"kubewright.example/bench/controller-runtime/api"
)

func main() {
	server := flag.String("server", "", "address of the API server")
	flag.Parse()
	api.Main(func() error { return run(ctrl.SetupSignalHandler(), *server) })
}

func run(ctx context.Context, server string) error {
	debug.FreeOSMemory()
	before, err := resident()
	if err != nil {
		return err
	}
	options := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	pods, err := cache.New(&rest.Config{Host: server, QPS: -1}, options)
	if err != nil {
		return fmt.Errorf("make a cache: %w", err)
	}
	go func() { _ = pods.Start(ctx) }()
	// This doesn't wait for the list if the cache has not started yet.
	if _, err := pods.GetInformer(ctx, &corev1.Pod{}); err != nil {
		return fmt.Errorf("make an informer of pods: %w", err)
	}
	if !pods.WaitForCacheSync(ctx) {
		return fmt.Errorf("the pods were not listed")
	}
	filled, err := resident()
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	spared, err := resident()
	if err != nil {
		return err
	}
	all := &corev1.PodList{}
	if err := pods.List(ctx, all); err != nil {
		return fmt.Errorf("read the pods: %w", err)
	}
	fmt.Println(len(all.Items), filled-before, spared-before)
	return nil
}

// resident returns the resident memory of this process in bytes.
func resident() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, line, found := bytes.Cut(status, []byte("VmRSS:"))
	fields := bytes.Fields(line)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("/proc/self/status has no VmRSS")
	}
	kibibytes, err := strconv.Atoi(string(fields[0]))
	return kibibytes * 1024, err
}
