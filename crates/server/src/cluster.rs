//! Cluster mode: which slots this node serves, and where a command is sent.
//! The slots are the store's own, so nothing is kept per key.

use crate::command::Command;
use crate::config::{Config, Param};
use crate::context::{Args, Context};
use crate::error::Error;
use parking_lot::RwLock;
use snug_store::SLOTS;

/// The cluster as this node knows it: itself.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub enabled: bool,
    state: RwLock<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub id: String,
    pub owned: Vec<bool>,
    pub epoch: u64,
}

impl Cluster {
    pub(crate) fn new(config: &Config) -> Self {
        let state = State { id: crate::server::random_hex(), owned: vec![false; SLOTS], epoch: 0 };
        Self { enabled: config.is_on(Param::ClusterEnabled), state: RwLock::new(state) }
    }

    /// What this node knows, to be read.
    pub(crate) fn read(&self) -> parking_lot::RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// What this node knows, to be changed.
    pub(crate) fn write(&self) -> parking_lot::RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Whether this node may execute a command on its keys.
    pub(crate) fn route(
        &self,
        cx: &Context<'_>,
        command: &Command,
        args: Args<'_>,
    ) -> Result<(), Error> {
        let mut slot = None;
        for index in command.key_indices(args)? {
            let here = cx.key(args.bytes(index)).slot();
            if slot.is_some_and(|slot| slot != here) {
                return Err(Error::CROSS_SLOT);
            }
            slot = Some(here);
        }
        let Some(slot) = slot else { return Ok(()) };
        let state = self.read();
        let full = cx.server.config.is_on(Param::ClusterRequireFullCoverage);
        if full && !state.owned.iter().all(|&owned| owned) {
            return Err(Error::new("CLUSTERDOWN The cluster is down"));
        }
        if !state.owned[slot] {
            return Err(Error::new("CLUSTERDOWN Hash slot not served"));
        }
        Ok(())
    }
}
