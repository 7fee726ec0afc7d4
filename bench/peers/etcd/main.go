// Command etcd is the store of kube-apiserver, which the benchmarks compare with the embedded API server.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
