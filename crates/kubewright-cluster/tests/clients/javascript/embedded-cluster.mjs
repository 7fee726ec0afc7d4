// Starts embedded clusters for tests.

// ANCHOR: cluster
import { spawn } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { KubeConfig } from '@kubernetes/client-node';

/** Starts an embedded cluster. `stop` ends it. */
export async function startCluster() {
  const kubeconfig = join(await mkdtemp(join(tmpdir(), 'cluster-')), 'kubeconfig');
  const args = ['cluster', '--wait', '--kubeconfig', kubeconfig];
  const child = spawn('kubewright', args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  await once(createInterface(child.stdout), 'line'); // printed when the cluster is ready
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  const stop = async () => {
    child.kill();
    await exited;
  };
  return { config, stop };
}
// ANCHOR_END: cluster
