//go:build tools

// Package peer has the module of kube-apiserver, which the benchmarks compare with the embedded API server.
package peer

import _ "k8s.io/kubernetes/cmd/kube-apiserver/app"
