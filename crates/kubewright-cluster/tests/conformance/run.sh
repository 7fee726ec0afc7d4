#!/bin/sh
# Runs Kubernetes' end-to-end tests against the embedded cluster, in namespaces of their own: run.sh FOLDER KUBEWRIGHT FOCUS SKIP
# FOLDER has e2e.test, agnhost, resource-consumer and consume-cpu, and gets cluster.log, e2e.log and reports/junit_01.xml.
set -eu
folder=$1 kubewright=$2 focus=$3 skip=$4

if [ -z "${CONFORMANCE_ROOT:-}" ]; then
	# The images' programs are at fixed paths. They are written to an overlay of the file system, which ends with the namespace.
	ip link set lo up
	# What a test mounts below /tmp and in the directory of kubelets outside of the overlay is seen inside, too. On this machine, that directory
	# stays empty.
	mount --make-rshared /
	mkdir -p /var/lib/kubelet
	mount -t tmpfs tmpfs /var/lib/kubelet
	above=$folder/root
	mkdir -p "$above"
	mount -t tmpfs tmpfs "$above"
	mkdir "$above/upper" "$above/work" "$above/root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$above/upper,workdir=$above/work" "$above/root"
	for path in /proc /sys /dev /tmp /var/lib/kubelet "$folder"; do
		mount --rbind "$path" "$above/root$path"
	done
	export CONFORMANCE_ROOT="$above"
	exec chroot "$above/root" /bin/sh "$0" "$@"
fi

# As in the image, the program is there twice, and `pause` is the default command.
cp "$folder/agnhost" /agnhost
cp "$folder/agnhost" /agnhost-2
cat >/agnhost-image <<'END'
#!/bin/sh
[ "$#" -gt 0 ] || set -- pause
export CERT_FILE="${CERT_FILE:-/localhost.crt}" KEY_FILE="${KEY_FILE:-/localhost.key}"
exec /agnhost "$@"
END
# A program that uses processors and memory as it is told to, which looks for its helper in its working directory.
cp "$folder/resource-consumer" /resource-consumer
mkdir -p /consume-cpu
cp "$folder/consume-cpu" /consume-cpu/consume-cpu
cat >/consumer <<'END'
#!/bin/sh
cd /
exec /resource-consumer "$@"
END
# A web server on port 80, as in the images of nginx and httpd.
cat >/web-server <<'END'
#!/bin/sh
[ "$#" -eq 0 ] || exec "$@"
exec /agnhost test-webserver
END
cat >/shell <<'END'
#!/bin/sh
[ "$#" -gt 0 ] || set -- sh
exec "$@"
END
# Programs of the images.
for program in dig nc nslookup openssl stress; do
	command -v "$program" >/dev/null || echo "$program is missing: some tests will fail (packages bind9-dnsutils, netcat-openbsd, openssl and stress of Debian)" >&2
done
[ -e /bin/sysctl ] || ln -s "$(command -v sysctl)" /bin/sysctl || echo "sysctl is missing: some tests will fail (package procps of Debian)" >&2
# The images' shells know [[, and pass on variables with any names.
ln -sf /bin/bash /bin/sh
# Files of the images that tests ask for.
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout /localhost.key -out /localhost.crt 2>/dev/null
mkdir -p /usr/local/apache2/htdocs
echo page >/usr/local/apache2/htdocs/index.html
ln -s /usr/local/apache2/htdocs/index.html /index.html
cat >/pause <<'END'
#!/bin/sh
exec /agnhost pause
END
# A program with a set-user-ID bit, as in the image that shows whether it takes effect.
cp "$(command -v id)" /effective-id
chmod 4755 /effective-id
cat >/effective-user <<'END'
#!/bin/sh
echo "Effective uid: $(/effective-id -u)"
END
chmod 755 /agnhost-image /consumer /web-server /shell /pause /effective-user
# The user of agnhost's image that is in a group. It comes before one of this machine with the same number.
sed -i '1i user-defined-in-image:x:1000:1000::/:/bin/sh' /etc/passwd
echo group-defined-in-image:x:50000:user-defined-in-image >>/etc/group
cat >/images <<'END'
registry.k8s.io/e2e-test-images/agnhost=/agnhost-image
registry.k8s.io/e2e-test-images/glibc-dns-testing=/agnhost-image
registry.k8s.io/e2e-test-images/busybox=/shell
registry.k8s.io/e2e-test-images/httpd=/web-server
registry.k8s.io/e2e-test-images/nginx=/web-server
registry.k8s.io/e2e-test-images/nonewprivs=/effective-user
registry.k8s.io/e2e-test-images/perl=/shell
registry.k8s.io/e2e-test-images/resource-consumer=/consumer
registry.k8s.io/pause=/pause
END

cd "$folder"
rm -rf reports kubeconfig
# A test looks for the process of the kubelet by its name.
cp "$kubewright" /kubelet
/kubelet cluster --wait --pod-network namespaces --isolate-containers --image-file /images --kubeconfig "$folder/kubeconfig" >cluster.log 2>&1 &
cluster=$!
trap 'kill "$cluster"; wait "$cluster" || :' EXIT
until [ -s "$folder/kubeconfig" ]; do
	kill -0 "$cluster"
	sleep 0.1
done
status=0
"$folder/e2e.test" --kubeconfig="$folder/kubeconfig" --provider=skeleton --num-nodes=1 --minStartupPods=0 \
	--report-dir="$folder/reports" --ginkgo.focus="$focus" --ginkgo.skip="$skip" --ginkgo.no-color --ginkgo.succinct \
	>e2e.log 2>&1 || status=$?
exit "$status"
