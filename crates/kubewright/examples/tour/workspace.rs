//! A workspace keeps a value that is neither spec nor status: here the token of a request to an external service. The
//! operator crashes after it has sent the request; the next one sends it again with the same token.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::{client::Client, prelude::*};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Greeting, cluster, greet, start, until};

// ANCHOR: memory
/// The stored value of a greeting. Values of older versions must stay readable.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    token: Option<String>,
    letter: Option<String>,
}
// ANCHOR_END: memory

/// A post office: counts the requests by token, and sends one letter per token.
#[derive(Clone, Default)]
struct Post {
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
    swallows_answers: Arc<AtomicBool>,
}

impl Post {
    async fn send(&self, token: &str) -> String {
        *self.asked.lock().entry(token.into()).or_default() += 1;
        if self.swallows_answers.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        format!("letter {token}")
    }
}

struct Writer(Post);

impl Reconciler<Greeting> for Writer {
    type Error = ClientError;

    // ANCHOR: send
    async fn reconcile(&self, _: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let mut memory = ctx.workspace::<Memory>().await?;
        if memory.letter.is_none() {
            if memory.token.is_none() {
                let token = format!("{:08x}", ctx.random().u64() as u32);
                // Stored when this returns: only then may anyone outside hear of it.
                memory.update(|memory| memory.token = Some(token)).await?;
            }
            let letter = self.0.send(memory.token.as_deref().unwrap_or_default()).await;
            memory.update(|memory| memory.letter = Some(letter)).await?;
        }
        Ok(Action::await_change())
    }
    // ANCHOR_END: send
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let post = Post::default();
    let operator =
        || start(Manager::new(cluster.client()).controller(Controller::<Greeting>::new(Writer(post.clone()))));
    post.swallows_answers.store(true, Ordering::SeqCst);
    let first = operator();
    greet(&cluster, &["ada"]).await?;
    until("the request is sent", async || !post.asked.lock().is_empty()).await?;
    first.crash().await;

    post.swallows_answers.store(false, Ordering::SeqCst);
    let second = operator();
    let maps = Client::new(cluster.client()).namespace("default").kind::<ConfigMap>();
    let remembered = async || {
        let map = maps.get(&ObjectKey::cluster("hello.greeting.workspace")).await.ok()??;
        map.data?.remove("memory.json").filter(|memory| memory.contains("letter "))
    };
    until("the answer is remembered", async || remembered().await.is_some()).await?;
    let asked = post.asked.lock().clone();
    println!("  sent, by token: {asked:?}; remembered: {}", remembered().await.unwrap_or_default());
    anyhow::ensure!(asked.len() == 1, "both operators used one token");
    anyhow::ensure!(asked.values().all(|times| *times >= 2), "and both have sent the request");
    second.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
