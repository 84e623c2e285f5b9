//! A worker's task that evicts what commands had no time for.

use crate::engine::blocked;
use crate::engine::eviction::Room;
use crate::engine::server::Server;
use crate::net::worker::{self, Scratch};
use crate::outside::clock::unix_ms;
use std::sync::Arc;

/// Evicts whenever somebody asks for it, until the limit is kept.
pub(crate) async fn evict_in_background(server: Arc<Server>) {
    loop {
        server.exceeded.wanted.notified().await;
        while worker::with(|scratch| slice(&server, scratch)) {
            tokio::task::yield_now().await;
        }
    }
}

/// Whether there is more to evict.
fn slice(server: &Server, scratch: &mut Scratch) -> bool {
    let batch = scratch.session.enter(unix_ms());
    let on_disk = server.make_room_on_disk(&batch);
    let room = server.make_room(&batch);
    if blocked::any_ready() {
        server.serve(&batch, scratch.worker);
    }
    on_disk || room == Room::Soon
}
