// The official JavaScript client against the cluster of KUBECONFIG.

import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ApiextensionsV1Api,
  AppsV1Api,
  Attach,
  AuthenticationV1Api,
  CoreV1Api,
  CustomObjectsApi,
  Exec,
  KubeConfig,
  KubernetesObjectApi,
  Log,
  PatchStrategy,
  PolicyV1Api,
  VersionApi,
  Watch,
  makeInformer,
  setHeaderOptions,
} from '@kubernetes/client-node';

const namespace = 'javascript';
const group = 'javascript.clients.example.com';

const config = new KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(CoreV1Api);
const apps = config.makeApiClient(AppsV1Api);

/** Registers a test, and prints one line for it. */
function check(name, run) {
  test(name, async (context) => {
    try {
      await run(context);
      console.log(`ok javascript ${name}`);
    } catch (error) {
      console.log(`FAIL javascript ${name}: ${String(error?.message ?? error).replace(/\s+/g, ' ')}`);
      throw error;
    }
  });
}

/** Waits for a condition, and returns its value. */
async function until(what, condition, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  while (Date.now() < deadline) {
    const value = await condition();
    if (value) return value;
    await sleep(50);
  }
  throw new Error(`timed out waiting until ${what}`);
}

/** Closes all connections between clients and the API server. */
async function cutConnections() {
  const answer = await fetch(process.env.KUBEWRIGHT_CUT);
  await answer.text();
}

/** Checks the code and the reason of an error, and returns its status. */
async function refused(code, reason, call) {
  const error = await call.then(
    () => assert.fail(`expected ${reason}`),
    (error) => error,
  );
  assert.equal(error.code, code, error.stack);
  const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
  assert.deepEqual([status.code, status.reason], [code, reason]);
  return status;
}

const as = (strategy) => setHeaderOptions('Content-Type', strategy);
const configMap = (name, data, labels) => ({ metadata: { name, labels }, data });
const pod = (name, script) => ({
  metadata: { name, labels: { app: name } },
  spec: {
    restartPolicy: 'Never',
    terminationGracePeriodSeconds: 0,
    containers: [{ name: 'main', image: 'busybox', command: ['sh', '-c', script] }],
  },
});
const deployment = (name, replicas = 0) => ({
  metadata: { name },
  spec: {
    replicas,
    selector: { matchLabels: { app: name } },
    template: {
      metadata: { labels: { app: name } },
      spec: {
        terminationGracePeriodSeconds: 0,
        containers: [{ name: 'main', image: 'busybox', command: ['sleep', '1000'] }],
      },
    },
  },
});

before(async () => {
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  await until('the namespace has a service account', async () => {
    return (await core.listNamespacedServiceAccount({ namespace })).items.length > 0;
  });
});

check('replace-builtin', async () => {
  await core.createNamespacedConfigMap({ namespace, body: configMap('replaced', { a: '1' }) });
  const found = await core.readNamespacedConfigMap({ namespace, name: 'replaced' });
  found.data.a = '2';
  const replaced = await core.replaceNamespacedConfigMap({ namespace, name: 'replaced', body: found });
  assert.deepEqual(replaced.data, { a: '2' });

  await apps.createNamespacedDeployment({ namespace, body: deployment('replaced') });
  const running = await apps.readNamespacedDeployment({ namespace, name: 'replaced' });
  running.metadata.labels = { tier: 'web' };
  // The Deployment controller writes the status at any time.
  running.metadata.resourceVersion = undefined;
  const changed = await apps.replaceNamespacedDeployment({ namespace, name: 'replaced', body: running });
  assert.deepEqual(changed.metadata.labels, { tier: 'web' });
});

check('replace-custom', async () => {
  const schema = {
    type: 'object',
    properties: {
      spec: { type: 'object', properties: { size: { type: 'integer', minimum: 1 } } },
      status: { type: 'object', x_kubernetes_preserve_unknown_fields: true },
    },
  };
  const definitions = config.makeApiClient(ApiextensionsV1Api);
  const name = `widgets.${group}`;
  const version = { name: 'v1', served: true, storage: true, subresources: { status: {} } };
  await definitions.createCustomResourceDefinition({
    body: {
      metadata: { name },
      spec: {
        group,
        scope: 'Namespaced',
        names: { plural: 'widgets', singular: 'widget', kind: 'Widget' },
        versions: [{ ...version, schema: { openAPIV3Schema: schema } }],
      },
    },
  });
  await until('the kind is established', async () => {
    const { status } = await definitions.readCustomResourceDefinition({ name });
    return status?.conditions?.some(({ type, status }) => type === 'Established' && status === 'True');
  });
  const widgets = config.makeApiClient(CustomObjectsApi);
  const place = { group, version: 'v1', namespace, plural: 'widgets' };
  const widget = { apiVersion: `${group}/v1`, kind: 'Widget', metadata: { name: 'one' }, spec: { size: 1 } };
  await widgets.createNamespacedCustomObject({ ...place, body: widget });
  const found = await widgets.getNamespacedCustomObject({ ...place, name: 'one' });
  found.spec.size = 2;
  const replaced = await widgets.replaceNamespacedCustomObject({ ...place, name: 'one', body: found });
  assert.deepEqual([replaced.spec.size, replaced.metadata.generation], [2, 2]);
  replaced.status = { ready: true };
  await widgets.replaceNamespacedCustomObjectStatus({ ...place, name: 'one', body: replaced });
  const now = await widgets.getNamespacedCustomObject({ ...place, name: 'one' });
  assert.deepEqual(now.status, { ready: true });
});

check('status-of-a-new-object', async () => {
  const created = await apps.createNamespacedDeployment({ namespace, body: deployment('fresh') });
  assert.equal(created.status.readyReplicas, undefined);
});

check('patch-json', async () => {
  await core.createNamespacedConfigMap({ namespace, body: configMap('patched-json', { a: '1', b: '1' }) });
  const body = [
    { op: 'test', path: '/data/a', value: '1' },
    { op: 'replace', path: '/data/a', value: '2' },
    { op: 'remove', path: '/data/b' },
  ];
  const patch = { namespace, name: 'patched-json', body };
  const patched = await core.patchNamespacedConfigMap(patch, as(PatchStrategy.JsonPatch));
  assert.deepEqual(patched.data, { a: '2' });
});

check('patch-merge', async () => {
  await core.createNamespacedConfigMap({ namespace, body: configMap('patched-merge', { a: '1', b: '1' }) });
  const patch = { namespace, name: 'patched-merge', body: { data: { a: '2', b: null } } };
  const patched = await core.patchNamespacedConfigMap(patch, as(PatchStrategy.MergePatch));
  assert.deepEqual(patched.data, { a: '2' });
});

check('patch-strategic', async () => {
  await apps.createNamespacedDeployment({ namespace, body: deployment('patched') });
  const body = { spec: { template: { spec: { containers: [{ name: 'sidecar', image: 'busybox' }] } } } };
  const patch = { namespace, name: 'patched', body };
  const patched = await apps.patchNamespacedDeployment(patch, as(PatchStrategy.StrategicMergePatch));
  const names = patched.spec.template.spec.containers.map(({ name }) => name);
  assert.deepEqual(names.sort(), ['main', 'sidecar']);
});

check('apply', async () => {
  const objects = KubernetesObjectApi.makeApiClient(config);
  const apply = (value, manager, force) => {
    const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'applied', namespace }, data: { a: value } };
    return objects.patch(object, undefined, undefined, manager, force, PatchStrategy.ServerSideApply);
  };
  const first = await apply('1', 'one');
  const again = await apply('1', 'one');
  assert.equal(first.metadata.resourceVersion, again.metadata.resourceVersion);
  assert.deepEqual((await apply('2', 'one')).data, { a: '2' });
  const status = await refused(409, 'Conflict', apply('3', 'two'));
  assert.equal(status.details.causes[0].reason, 'FieldManagerConflict');
  assert.deepEqual((await apply('3', 'two', true)).data, { a: '3' });
});

check('informer-resumes', async () => {
  const labelSelector = 'watched=yes';
  const list = () => core.listNamespacedConfigMap({ namespace, labelSelector });
  const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list, labelSelector);
  const seen = [];
  for (const event of ['add', 'update', 'delete']) {
    informer.on(event, ({ metadata, data }) => seen.push(`${event} ${metadata.name} ${data?.a}`));
  }
  let stopped = false;
  informer.on('error', () => stopped || setTimeout(() => informer.start(), 100));
  await core.createNamespacedConfigMap({ namespace, body: configMap('first', { a: '1' }, { watched: 'yes' }) });
  await informer.start();
  await until('the informer has listed', () => seen.includes('add first 1'));
  await cutConnections();
  await core.createNamespacedConfigMap({ namespace, body: configMap('second', { a: '1' }, { watched: 'yes' }) });
  const patch = { namespace, name: 'first', body: { data: { a: '2' } } };
  await core.patchNamespacedConfigMap(patch, as(PatchStrategy.MergePatch));
  await until('the change is seen', () => seen.includes('update first 2'));
  await cutConnections();
  await core.deleteNamespacedConfigMap({ namespace, name: 'second' });
  await until('the deletion is seen', () => seen.includes('delete second 1'));
  stopped = true;
  await informer.stop();
  assert.deepEqual(seen.sort(), ['add first 1', 'add second 1', 'delete second 1', 'update first 2']);
});

check('watch-ends', async () => {
  const { metadata } = await core.listNamespacedConfigMap({ namespace });
  await core.createNamespacedConfigMap({ namespace, body: configMap('watched', { a: '1' }) });
  const events = [];
  const query = { resourceVersion: metadata.resourceVersion, timeoutSeconds: 1 };
  await new Promise((resolve, reject) => {
    const note = (phase, object) => events.push(`${phase} ${object.metadata.name}`);
    const done = (error) => (error ? reject(error) : resolve());
    new Watch(config).watch(`/api/v1/namespaces/${namespace}/configmaps`, query, note, done);
  });
  assert.deepEqual(events, ['ADDED watched']);
});

check('paging', async () => {
  for (let index = 0; index < 5; index++) {
    await core.createNamespacedConfigMap({ namespace, body: configMap(`page-${index}`, {}, { paged: 'yes' }) });
  }
  const sizes = [];
  let _continue;
  do {
    const page = await core.listNamespacedConfigMap({ namespace, labelSelector: 'paged=yes', limit: 2, _continue });
    sizes.push(page.items.length);
    _continue = page.metadata._continue;
  } while (_continue);
  assert.deepEqual(sizes, [2, 2, 1]);
});

check('logs', async () => {
  await core.createNamespacedPod({ namespace, body: pod('logger', 'echo one; echo two') });
  await until('the pod has ended', async () => {
    return (await core.readNamespacedPodStatus({ namespace, name: 'logger' })).status.phase === 'Succeeded';
  });
  assert.equal(await core.readNamespacedPodLog({ namespace, name: 'logger' }), 'one\ntwo\n');
  assert.equal(await core.readNamespacedPodLog({ namespace, name: 'logger', tailLines: 1 }), 'two\n');
});

check('logs-followed', async () => {
  await core.createNamespacedPod({ namespace, body: pod('talker', 'for i in 1 2 3; do echo $i; sleep 0.2; done') });
  await until('the pod has started', async () => {
    const { status } = await core.readNamespacedPodStatus({ namespace, name: 'talker' });
    return ['Running', 'Succeeded'].includes(status.phase);
  });
  const stream = new PassThrough();
  await new Log(config).log(namespace, 'talker', 'main', stream, { follow: true });
  let text = '';
  for await (const part of stream) text += part;
  assert.equal(text, '1\n2\n3\n');
});

check('scale', async () => {
  await apps.createNamespacedDeployment({ namespace, body: deployment('scaled') });
  const place = { namespace, name: 'scaled' };
  await apps.patchNamespacedDeploymentScale({ ...place, body: { spec: { replicas: 1 } } }, as(PatchStrategy.MergePatch));
  await until('one replica is ready', async () => (await apps.readNamespacedDeployment(place)).status.readyReplicas === 1);
  const scale = await apps.readNamespacedDeploymentScale(place);
  assert.deepEqual([scale.spec.replicas, scale.status.replicas, scale.status.selector], [1, 1, 'app=scaled']);
  scale.spec.replicas = 0;
  // The Deployment controller writes the status at any time.
  scale.metadata.resourceVersion = undefined;
  // Zero replicas are left out.
  assert.ok(!(await apps.replaceNamespacedDeploymentScale({ ...place, body: scale })).spec.replicas);
});

const eviction = (name) => ({ namespace, name, body: { metadata: { name, namespace } } });

check('eviction', async () => {
  await core.createNamespacedPod({ namespace, body: pod('evicted', 'sleep 1000') });
  await core.createNamespacedPodEviction(eviction('evicted'));
  await until('the pod is gone', async () => {
    return (await core.listNamespacedPod({ namespace, fieldSelector: 'metadata.name=evicted' })).items.length === 0;
  });
});

check('eviction-is-refused-by-a-budget', async () => {
  await core.createNamespacedPod({ namespace, body: pod('guarded', 'sleep 1000') });
  const body = {
    metadata: { name: 'guarded' },
    spec: { minAvailable: 1, selector: { matchLabels: { app: 'guarded' } } },
  };
  await config.makeApiClient(PolicyV1Api).createNamespacedPodDisruptionBudget({ namespace, body });
  await until('the pod runs', async () => {
    return (await core.readNamespacedPodStatus({ namespace, name: 'guarded' })).status.phase === 'Running';
  });
  await refused(429, 'TooManyRequests', core.createNamespacedPodEviction(eviction('guarded')));
});

/** Creates a pod, and waits until it runs. */
async function runs(name, body) {
  await core.createNamespacedPod({ namespace, body });
  await until('the pod runs', async () => {
    return (await core.readNamespacedPod({ namespace, name })).status?.phase === 'Running';
  });
}

/** Returns a stream, and the text that was written to it. */
function collector() {
  const stream = new PassThrough();
  const chunks = [];
  stream.on('data', (chunk) => chunks.push(chunk));
  return [stream, () => Buffer.concat(chunks).toString()];
}

check('exec', async () => {
  await runs('target', pod('target', 'sleep 1000'));
  const [output, said] = collector();
  const [errors, complained] = collector();
  const input = new PassThrough();
  const command = ['sh', '-c', 'read line; echo got $line; echo oops >&2; exit 3'];
  const result = await new Promise((resolve, reject) => {
    new Exec(config).exec(namespace, 'target', 'main', command, output, errors, input, false, resolve).catch(reject);
    input.write('text\n');
  });
  assert.deepEqual([result.status, result.reason], ['Failure', 'NonZeroExitCode']);
  assert.equal(result.details.causes[0].message, '3');
  await until('the output is here', () => said() === 'got text\n' && complained() === 'oops\n');
});

check('attach', async () => {
  const body = pod('attached', 'while read line; do echo got $line; done');
  body.spec.containers[0].stdin = true;
  await runs('attached', body);
  const [output, said] = collector();
  const input = new PassThrough();
  const socket = await new Attach(config).attach(namespace, 'attached', 'main', output, null, input, false);
  input.write('text\n');
  await until('the output is here', () => said() === 'got text\n');
  socket.close();
});

check('token', async () => {
  await core.createNamespacedServiceAccount({ namespace, body: { metadata: { name: 'robot' } } });
  const request = { namespace, name: 'robot', body: { spec: { audiences: [], expirationSeconds: 600 } } };
  const { status } = await core.createNamespacedServiceAccountToken(request);
  const withToken = (token) => {
    const own = new KubeConfig();
    own.loadFromClusterAndUser(config.getCurrentCluster(), { name: 'robot', token });
    return own;
  };
  const robot = withToken(status.token);
  const review = await robot.makeApiClient(AuthenticationV1Api).createSelfSubjectReview({ body: {} });
  assert.equal(review.status.userInfo.username, `system:serviceaccount:${namespace}:robot`);
  const forbidden = robot.makeApiClient(CoreV1Api).listNamespacedSecret({ namespace });
  const refusal = await refused(403, 'Forbidden', forbidden);
  assert.match(refusal.message, /cannot list resource "secrets"/);
  // The client drops the body of this error.
  await assert.rejects(withToken('x').makeApiClient(CoreV1Api).listNamespacedPod({ namespace }), { code: 401 });
});

check('errors', async () => {
  await refused(404, 'NotFound', core.readNamespacedConfigMap({ namespace, name: 'absent' }));
  const created = await core.createNamespacedConfigMap({ namespace, body: configMap('errors', { a: '1' }) });
  await refused(409, 'AlreadyExists', core.createNamespacedConfigMap({ namespace, body: configMap('errors') }));
  const patch = { namespace, name: 'errors', body: { data: { a: '2' } } };
  await core.patchNamespacedConfigMap(patch, as(PatchStrategy.MergePatch));
  await refused(409, 'Conflict', core.replaceNamespacedConfigMap({ namespace, name: 'errors', body: created }));
  const invalid = core.createNamespacedConfigMap({ namespace, body: configMap('No_Name') });
  const status = await refused(422, 'Invalid', invalid);
  assert.equal(status.details.causes[0].field, 'metadata.name');
});

check('deletion-answers', async () => {
  await core.createNamespacedPod({ namespace, body: pod('deleted', 'sleep 1000') });
  const answer = await core.deleteNamespacedPod({ namespace, name: 'deleted' });
  assert.equal(answer.metadata.name, 'deleted');
  await core.createNamespacedConfigMap({ namespace, body: configMap('deleted') });
  const status = await core.deleteNamespacedConfigMap({ namespace, name: 'deleted' });
  assert.deepEqual([status.kind, status.status], ['Status', 'Success']);
});

check('version', async () => {
  const { major, minor } = await config.makeApiClient(VersionApi).getCode();
  assert.deepEqual([major, minor], ['1', '36']);
});
