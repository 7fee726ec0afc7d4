package controller

import (
	"io"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	cachev1 "example.com/envtest/api/v1"
)

func memcached(name string, size int32) *cachev1.Memcached {
	return &cachev1.Memcached{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       cachev1.MemcachedSpec{Size: size},
	}
}

var _ = Describe("Memcached controller", func() {
	key := client.ObjectKey{Namespace: "default", Name: "sample"}

	It("reconcile", func() {
		Expect(k8sClient.Create(ctx, memcached(key.Name, 2))).To(Succeed())
		deployment := &appsv1.Deployment{}
		Eventually(func() error { return k8sClient.Get(ctx, key, deployment) }, 10*time.Second).Should(Succeed())
		Expect(deployment.OwnerReferences).To(HaveLen(1))

		// No controller sets the status of Deployments here.
		deployment.Status.Replicas, deployment.Status.ReadyReplicas = 2, 2
		Expect(k8sClient.Status().Update(ctx, deployment)).To(Succeed())
		sample := &cachev1.Memcached{}
		Eventually(func() (int32, error) {
			err := k8sClient.Get(ctx, key, sample)
			return sample.Status.ReadyReplicas, err
		}, 10*time.Second).Should(Equal(int32(2)))

		sample.Spec.Size = 3
		Expect(k8sClient.Update(ctx, sample)).To(Succeed())
		Eventually(func() (int32, error) {
			err := k8sClient.Get(ctx, key, deployment)
			return *deployment.Spec.Replicas, err
		}, 10*time.Second).Should(Equal(int32(3)))
	})

	It("validation", func() {
		err := k8sClient.Create(ctx, memcached("large", 9))
		Expect(errors.IsInvalid(err)).To(BeTrue(), "%v", err)
	})

	It("nothing-else-writes", func() {
		Expect(k8sClient.Create(ctx, memcached("kept", 1))).To(Succeed())
		deployment := &appsv1.Deployment{}
		kept := client.ObjectKey{Namespace: "default", Name: "kept"}
		Eventually(func() error { return k8sClient.Get(ctx, kept, deployment) }, 10*time.Second).Should(Succeed())
		Expect(k8sClient.Delete(ctx, memcached("kept", 1))).To(Succeed())
		Consistently(func() error { return k8sClient.Get(ctx, kept, deployment) }, time.Second).Should(Succeed())
		pods := &corev1.PodList{}
		Expect(k8sClient.List(ctx, pods)).To(Succeed())
		Expect(pods.Items).To(BeEmpty())
	})

	It("users-by-certificate", func() {
		reader, err := testEnv.AddUser(envtest.User{Name: "reader", Groups: []string{"readers"}}, &rest.Config{})
		Expect(err).NotTo(HaveOccurred())
		asReader, err := kubernetes.NewForConfig(reader.Config())
		Expect(err).NotTo(HaveOccurred())
		review, err := asReader.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.UserInfo.Username).To(Equal("reader"))
		Expect(review.Status.UserInfo.Groups).To(Equal([]string{"readers", "system:authenticated"}))

		_, err = asReader.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		Expect(errors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(k8sClient.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "readers"}},
		})).To(Succeed())
		_, err = asReader.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("service-account-tokens", func() {
		clients, err := kubernetes.NewForConfig(cfg)
		Expect(err).NotTo(HaveOccurred())
		accounts := clients.CoreV1().ServiceAccounts("default")
		_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		token, err := accounts.CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		review, err := clients.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.User.Username).To(Equal("system:serviceaccount:default:robot"))
		Expect(token.Spec.Audiences).To(Equal([]string{testEnv.ControlPlane.APIServer.SecureServing.URL("https", "/").String()}))
	})

	It("kubectl", func() {
		user, err := testEnv.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{})
		Expect(err).NotTo(HaveOccurred())
		kubectl, err := user.Kubectl()
		Expect(err).NotTo(HaveOccurred())
		stdout, _, err := kubectl.Run("get", "memcached", "sample", "--output=name")
		Expect(err).NotTo(HaveOccurred())
		text, err := io.ReadAll(stdout)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(Equal("memcached.cache.example.com/sample\n"))
	})
})
