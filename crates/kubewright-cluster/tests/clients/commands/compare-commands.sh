#!/usr/bin/env bash
# Prints the commands that compare.sh runs, in their order.

kinds='configmaps secrets services serviceaccounts endpoints persistentvolumeclaims limitranges resourcequotas
    replicationcontrollers podtemplates pods events deployments.apps replicasets.apps statefulsets.apps daemonsets.apps
    jobs.batch cronjobs.batch leases.coordination.k8s.io endpointslices.discovery.k8s.io ingresses.networking.k8s.io
    networkpolicies.networking.k8s.io poddisruptionbudgets.policy roles.rbac.authorization.k8s.io
    rolebindings.rbac.authorization.k8s.io horizontalpodautoscalers.autoscaling'
cluster_kinds='namespaces nodes persistentvolumes clusterroles clusterrolebindings storageclasses ingressclasses
    priorityclasses runtimeclasses csidrivers csinodes volumeattachments customresourcedefinitions
    validatingwebhookconfigurations mutatingwebhookconfigurations validatingadmissionpolicies
    certificatesigningrequests apiservices flowschemas prioritylevelconfigurations'

echo 'kubectl api-versions'
for group in '""' apps batch autoscaling policy networking.k8s.io rbac.authorization.k8s.io storage.k8s.io \
    coordination.k8s.io discovery.k8s.io apiextensions.k8s.io admissionregistration.k8s.io certificates.k8s.io \
    scheduling.k8s.io node.k8s.io flowcontrol.apiserver.k8s.io authentication.k8s.io authorization.k8s.io \
    events.k8s.io apiregistration.k8s.io resource.k8s.io; do
    echo "kubectl api-resources --api-group=$group -o wide --sort-by=name"
done
for kind in $kinds $cluster_kinds; do
    echo "kubectl explain $kind"
done
for kind in $kinds; do
    echo "kubectl get $kind absent"
    echo "kubectl delete $kind absent"
done
for kind in $kinds; do
    echo "kubectl get $kind -l absent=yes"
done
for field in pod.spec pod.spec.containers pod.spec.containers.livenessProbe pod.spec.affinity pod.status pod.spec.volumes \
    deployment.spec deployment.spec.strategy service.spec service.spec.ports job.spec cronjob.spec \
    statefulset.spec daemonset.spec ingress.spec networkpolicy.spec persistentvolumeclaim.spec secret.data \
    configmap.data role.rules customresourcedefinition.spec; do
    echo "kubectl explain $field"
done

# Objects that kubectl makes, as the server completes them.
while IFS= read -r line; do
    echo "kubectl create $line --dry-run=server -o yaml"
    echo "kubectl create $line"
done <<'LIST'
configmap settings --from-literal=a=1 --from-literal=b=2
secret generic keys --from-literal=password=secret
secret docker-registry registry --docker-username=me --docker-password=x --docker-server=example.com
secret tls bad --cert=/dev/null --key=/dev/null
serviceaccount robot
service clusterip inner --tcp=80:8080
service nodeport outer --tcp=80:8080
service externalname alias --external-name=example.com
service loadbalancer balanced --tcp=80
service clusterip headless --clusterip=None
deployment web --image=busybox --replicas=2 --port=8080
job once --image=busybox -- echo hello
cronjob nightly --image=busybox --schedule="0 3 * * *" -- echo hello
role reader --verb=get,list --resource=pods,services
rolebinding readers --role=reader --serviceaccount=default:default
quota limits --hard=pods=100,services=50
poddisruptionbudget guard --selector=app=web --min-available=1
ingress front --rule="example.com/=inner:80"
priorityclass important-compare --value=1000 --description=test
token robot --duration=1h --output=jsonpath={.kind}
LIST
echo 'kubectl run single --image=busybox --restart=Never --dry-run=server -o yaml'
echo 'kubectl run single --image=busybox --restart=Never --labels=app=single -- sleep 1000'
echo 'kubectl autoscale deployment web --min=1 --max=3'
echo 'kubectl expose deployment web --port=80 --target-port=8080'

for object in configmap/settings secret/keys secret/registry serviceaccount/robot service/inner service/outer service/alias \
    service/balanced service/headless cronjob/nightly role/reader rolebinding/readers resourcequota/limits \
    poddisruptionbudget/guard ingress/front priorityclass/important-compare; do
    echo "kubectl get $object"
    echo "kubectl get $object -o wide"
    echo "kubectl get $object -o yaml"
    echo "kubectl describe $object"
done
for object in deployment/web job/once pod/single; do
    echo "kubectl get $object -o 'jsonpath={.spec}'"
    echo "kubectl get $object -o name"
done
for kind in configmaps secrets services serviceaccounts roles rolebindings cronjobs ingresses; do
    echo "kubectl get $kind"
    echo "kubectl get $kind --show-labels"
    echo "kubectl get $kind -o custom-columns=NAME:.metadata.name,KIND:.kind"
done

# Changes.
while IFS= read -r line; do
    echo "kubectl $line"
done <<'LIST'
label configmap settings colour=red
label configmap settings colour=blue
label configmap settings colour=blue --overwrite
label configmap settings colour-
annotate configmap settings note=mine
annotate configmap settings note-
patch configmap settings -p '{"data":{"a":"2"}}'
patch configmap settings -p '{"data":{"a":"2"}}'
patch configmap settings --type=merge -p '{"data":{"b":null}}'
patch configmap settings --type=json -p '[{"op":"remove","path":"/data/absent"}]'
patch configmap settings --type=json -p '[{"op":"test","path":"/data/a","value":"9"}]'
patch configmap settings -p '{"data":{"a":1}}'
patch configmap settings -p '{"unknown":1}'
patch configmap settings -p 'no json'
patch deployment web -p '{"spec":{"replicas":-1}}'
patch deployment web -p '{"spec":{"selector":{"matchLabels":{"a":"b"}}}}'
patch service inner -p '{"spec":{"clusterIP":"1.2.3.4"}}'
patch service inner -p '{"spec":{"ports":[{"port":80},{"port":81}]}}'
patch pod single -p '{"spec":{"restartPolicy":"Always"}}'
patch pod single -p '{"spec":{"containers":[{"name":"single","image":"busybox:2"}]}}'
scale deployment web --replicas=1
scale deployment web --current-replicas=9 --replicas=1
set image deployment/web busybox=busybox:2
set image deployment/web absent=busybox:2
set env deployment/web A=1
set resources deployment/web --limits=cpu=1,memory=1Gi
set serviceaccount deployment web robot
rollout history deployment/web
rollout pause deployment/web
rollout pause deployment/web
rollout resume deployment/web
rollout restart deployment/web
rollout undo deployment/web --to-revision=99
auth can-i create pods
auth can-i list secrets --as=system:serviceaccount:default:default
auth can-i get pods --as=nobody
auth whoami
get configmaps --as=nobody
get configmaps --as=nobody --as-group=system:masters -o name
create configmap settings
create configmap No_Name
create deployment No_Name --image=busybox
create namespace No_Name
create service clusterip inner --tcp=80
create job bad --image="Bad Image" -- echo
create cronjob bad --image=busybox --schedule="bad" -- echo
create quota bad --hard=pods=-1
create priorityclass system-mine --value=1
create priorityclass big-compare --value=2000000000
create rolebinding bad --role=absent --user=
create -f /dev/null
get absent
get pods,absent
get pod single extra
get pods --field-selector=spec.nodeName=absent
get pods --field-selector=absent=1
get pods -l 'a in ('
get --raw /absent
get --raw /api/v1/namespaces/absent/configmaps/absent
get --raw /apis/absent
get --raw /version/absent
get --raw /healthz
get --raw '/readyz?verbose'
get --raw /api
get --raw /apis/apps
get --raw /apis/apps/v1
delete configmap settings --dry-run=server
delete configmap settings
delete configmap settings
delete service inner outer
delete secret --all
delete all -l absent=yes
delete pod single --grace-period=0 --force
wait --for=delete configmap/settings --timeout=5s
wait --for=condition=Ready pod/absent --timeout=1s
cluster-info
version
LIST
