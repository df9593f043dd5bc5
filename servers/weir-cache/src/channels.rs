//! Publishing: who has subscribed to what.

use crate::resp::Replies;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use weir::tcp::{Handle, Refused};

/// A client that has subscribed, as publishers see it.
#[derive(Debug)]
pub struct Subscriber {
    /// Its number, for finding it again.
    pub id: u64,
    /// How it is reached.
    pub handle: Handle,
    /// It hears in the third version of the protocol.
    pub is_resp3: bool,
    /// It reads more slowly than is published to it: it is to be closed.
    pub too_slow: AtomicBool,
}

impl Subscriber {
    /// Leaves something for it. One that has no room for it is closed, as what it would hear next is not what comes next.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Refused> {
        let sent = self.handle.send(bytes);
        if sent == Err(Refused::Full) && !self.too_slow.swap(true, Relaxed) {
            let _ = self.handle.wake();
        }
        sent
    }
}

/// All channels that somebody has subscribed to.
///
/// One lock: so what is published on a channel reaches all its subscribers in one order.
#[derive(Debug, Default)]
pub struct Channels {
    channels: Mutex<Map>,
    /// Clients that were closed as they read too slowly.
    pub too_slow: AtomicU64,
}

#[derive(Debug, Default)]
struct Map {
    subscribers: HashMap<Box<[u8]>, Vec<Arc<Subscriber>>>,
    /// Bytes of the names, once for each subscription.
    bytes: usize,
}

/// Most bytes of names, once for each subscription of each client, and what one takes besides.
const MOST_BYTES: usize = 64 * 1024 * 1024;
const OVERHEAD: usize = 128;

impl Channels {
    fn lock(&self) -> MutexGuard<'_, Map> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to a channel, to which it has not, and tells it so before anything that is published there. Says whether
    /// there was room for it.
    pub fn subscribe(&self, channel: &[u8], subscriber: &Arc<Subscriber>, reply: &[u8]) -> bool {
        let mut map = self.lock();
        let bytes = map.bytes + channel.len() + OVERHEAD;
        if bytes > MOST_BYTES {
            return false;
        }
        map.bytes = bytes;
        // One that has no room for it is closed, and unsubscribes then.
        let _ = subscriber.send(reply);
        map.subscribers.entry(channel.into()).or_default().push(Arc::clone(subscriber));
        true
    }

    /// Ends a subscription, if it still stands.
    pub fn unsubscribe(&self, channel: &[u8], id: u64) {
        let mut map = self.lock();
        let Some(all) = map.subscribers.get_mut(channel) else { return };
        let before = all.len();
        all.retain(|subscriber| subscriber.id != id);
        let gone = before - all.len();
        if all.is_empty() {
            map.subscribers.remove(channel);
        }
        map.bytes -= gone * (channel.len() + OVERHEAD);
    }

    /// Ends all these subscriptions.
    pub fn leave(&self, channels: &HashSet<Box<[u8]>>, id: u64) {
        channels.iter().for_each(|channel| self.unsubscribe(channel, id));
    }

    /// Sends to all that have subscribed: to how many.
    pub fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let map = self.lock();
        let Some(all) = map.subscribers.get(channel) else { return 0 };
        // In each version of the protocol that somebody hears, once.
        let mut texts = [Vec::new(), Vec::new()];
        let mut reached = 0;
        for subscriber in all {
            let text = &mut texts[usize::from(subscriber.is_resp3)];
            if text.is_empty() {
                let mut replies = Replies::unlimited(text, subscriber.is_resp3);
                replies.push(3);
                replies.bulk(b"message");
                replies.bulk(channel);
                replies.bulk(message);
            }
            // One that is not reached is closed by its own thread, and unsubscribes there.
            reached += usize::from(subscriber.send(text).is_ok());
        }
        reached
    }

    /// Channels that somebody has subscribed to.
    pub fn count(&self) -> usize {
        self.lock().subscribers.len()
    }
}
