// A test that starts its own cluster. The book shows it.

// ANCHOR: example
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CoreV1Api } from '@kubernetes/client-node';
import { startCluster } from './embedded-cluster.mjs';

let cluster;
before(async () => {
  cluster = await startCluster();
});
after(() => cluster.stop());

test('own cluster', async () => {
  const core = cluster.config.makeApiClient(CoreV1Api);
  const greeting = { metadata: { name: 'greeting' }, data: { text: 'hello' } };
  await core.createNamespacedConfigMap({ namespace: 'default', body: greeting });

  const found = await core.readNamespacedConfigMap({ namespace: 'default', name: 'greeting' });

  assert.deepEqual(found.data, { text: 'hello' });
});
// ANCHOR_END: example

process.on('exit', (code) => console.log(`${code === 0 ? 'ok' : 'FAIL'} javascript own-cluster`));
