//! A gateway before a provider simulator, and an agent that speaks to it as real ones do.
#![allow(
    dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used
)]

pub mod agent;

use std::path::{Path, PathBuf};
use std::sync::Once;

use contexture::HostOptions;
use contexture::engines::register_context_engine;
use contexture_engine_api::{
    About, ContextEngine, EngineError, EngineFactory, FactoryRequest, HostInfo, OpenRequest,
    define_engine,
};
use contexture_gateway::{Gateway, Handle};
use contexture_provider_simulator::Simulator;

use agent::{APIS, Agent};

/// A gateway on a port of its own, until it is dropped.
pub struct Running {
    pub base: String,
    pub handle: Handle,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub async fn stop(self) {
        self.handle.stop();
        self.task.await.unwrap();
    }

    pub async fn metric(&self, name: &str) -> f64 {
        let page = reqwest::get(format!("{}/metrics", self.base))
            .await
            .unwrap();
        let page = page.text().await.unwrap();
        let mut sum = 0.0;
        for line in page.lines().filter(|line| line.starts_with(name)) {
            sum += line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
        }
        sum
    }
}

/// A provider, and a home directory that names it.
pub struct Stage {
    pub provider: Simulator,
    pub home: tempfile::TempDir,
}

impl Stage {
    /// `config` is what the configuration has beside the provider's addresses.
    pub fn new(config: &str) -> Self {
        let provider = Simulator::start();
        let home = tempfile::tempdir().unwrap();
        let stage = Self { provider, home };
        stage.configure(config);
        stage
    }

    pub fn configure(&self, config: &str) {
        let base = self.provider.base_url();
        let upstream = format!(
            "upstream:\n  openai: {{base_url: \"{base}/v1\"}}\n  anthropic: {{base_url: \"{base}\"}}\n  google: {{base_url: \"{base}\"}}\n"
        );
        std::fs::write(self.config(), format!("{upstream}{config}")).unwrap();
    }

    pub fn config(&self) -> PathBuf {
        self.home.path().join("config.yaml")
    }

    pub async fn gateway(&self) -> Running {
        start(self.home.path()).await
    }

    /// Nothing that the provider refuses was sent to it.
    pub fn nothing_was_refused(&self) {
        let refused = self.provider.violations();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}

/// The lossless engine, with its tools in every request.
struct AtOnce(Box<dyn EngineFactory>);

impl EngineFactory for AtOnce {
    fn about(host: &HostInfo) -> About {
        contexture_lcm::DEFINITION
            .describe(host)
            .about
            .offers_tools(true)
    }

    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        contexture_lcm::DEFINITION.create(request).map(Self)
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        self.0.open(request)
    }
}

/// A stage whose engine has tools in every request.
pub fn lcm_stage(more: &str) -> Stage {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        register_context_engine(define_engine!("lcm-at-once", factory AtOnce)).unwrap();
    });
    Stage::new(&format!("context: {{engine: lcm-at-once}}\n{more}"))
}

/// Plays a scene with each API, streamed and not: on a stage with this configuration, with a gateway and an agent of its
/// own. The provider may refuse nothing.
pub async fn each(
    stage: impl Fn(&str) -> Stage,
    config: &str,
    scene: impl AsyncFn(&Stage, Running, Agent),
) {
    for api in APIS {
        for stream in [true, false] {
            let stage = stage(config);
            let gateway = stage.gateway().await;
            let mut agent = Agent::new(api, &gateway.base, "s");
            agent.stream = stream;
            scene(&stage, gateway, agent).await;
            stage.nothing_was_refused();
        }
    }
}

pub async fn start(home: &Path) -> Running {
    start_at(home, "127.0.0.1:0").await
}

pub async fn start_at(home: &Path, listen: &str) -> Running {
    let gateway = Gateway::open(HostOptions::in_home(home), Some(listen))
        .await
        .unwrap();
    // The first line says: listening on URL, …
    let status = gateway.status().remove(0);
    let base = status.split([' ', ',']).nth(2).unwrap().to_owned();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        gateway.serve(|handle| drop(sender.send(handle))).await;
    });
    Running {
        base,
        handle: receiver.await.ok().unwrap(),
        task,
    }
}
