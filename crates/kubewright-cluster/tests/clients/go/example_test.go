package clients

// ANCHOR: example
import (
	"bufio"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// startCluster starts an embedded cluster, which ends with the test.
func startCluster(t *testing.T) kubernetes.Interface {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	command := exec.Command("kubewright", "cluster", "--wait", "--kubeconfig", kubeconfig)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	// Printed when the cluster is ready.
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

func TestOwnCluster(t *testing.T) {
	// ANCHOR_END: example
	report(t, "own-cluster")
	// ANCHOR: test
	maps := startCluster(t).CoreV1().ConfigMaps("default")
	greeting := &corev1.ConfigMap{Data: map[string]string{"text": "hello"}}
	greeting.Name = "greeting"
	if _, err := maps.Create(t.Context(), greeting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	found, err := maps.Get(t.Context(), "greeting", metav1.GetOptions{})

	if err != nil || found.Data["text"] != "hello" {
		t.Fatal(found, err)
	}
}

// ANCHOR_END: test
