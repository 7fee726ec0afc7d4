// Command queue-go measures Go's work queues in the same way as Kubewright's `queue` benchmark measures its own: a
// thousand keys are added, then each is taken and done. It prints one line for each queue: the module, its version, and
// the median round in microseconds.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	keys   = 1_000
	rounds = 1_000
)

func main() {
	// The priority queue's metrics are on, as in a controller. The plain queue has none unless a program provides some.
	priority := priorityqueue.New[reconcile.Request]("bench")
	plain := workqueue.NewTyped[reconcile.Request]()
	for _, peer := range []struct {
		module string
		queue  workqueue.TypedInterface[reconcile.Request]
	}{{"sigs.k8s.io/controller-runtime", priority}, {"k8s.io/client-go", plain}} {
		median, err := measure(peer.queue)
		if err != nil {
			fmt.Fprintf(os.Stderr, "the queue of %s: %v\n", peer.module, err)
			os.Exit(1)
		}
		fmt.Println(peer.module, version(peer.module), float64(median.Nanoseconds())/1000)
	}
}

// measure returns the median time of a round.
func measure(queue workqueue.TypedInterface[reconcile.Request]) (time.Duration, error) {
	defer queue.ShutDown()
	requests := make([]reconcile.Request, keys)
	for number := range requests {
		name := types.NamespacedName{Namespace: fmt.Sprintf("team-%d", number%100), Name: fmt.Sprintf("object-%d", number)}
		requests[number] = reconcile.Request{NamespacedName: name}
	}
	const warmUp = rounds / 10
	var spans []time.Duration
	for round := range warmUp + rounds {
		begun := time.Now()
		for _, request := range requests {
			queue.Add(request)
		}
		for range requests {
			request, isShutDown := queue.Get()
			if isShutDown {
				return 0, fmt.Errorf("it shut down")
			}
			queue.Done(request)
		}
		if round >= warmUp {
			spans = append(spans, time.Since(begun))
		}
		if left := queue.Len(); left != 0 {
			return 0, fmt.Errorf("%d keys were left", left)
		}
	}
	slices.Sort(spans)
	return spans[len(spans)/2], nil
}

// version returns the version of a module that this program was built with.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "of an unknown version"
}
