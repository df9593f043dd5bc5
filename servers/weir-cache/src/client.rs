//! A connection: what has come is carried out as far as its replies have room.
//!
//! While replies wait for room nothing more is carried out, and the client is not received from: so what a client that
//! does not read can take up is bounded.
//!
//! A client that has subscribed is sent everything by its handle, its own replies, too, so that they stand among what is
//! published in the order in which both came about. So they count as messages that it does not read, too. Once its last
//! subscription has ended and all that was left with the handle has gone out, it is as any other again: until then nothing
//! more is carried out for it.

use crate::{
    Shared,
    channels::Subscriber,
    commands::Context,
    resp::{Parser, Replies},
};
use std::{
    cell::Cell,
    collections::HashSet,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use weir::tcp::{Asks, Handler, Mail, Output};

/// A connection's client.
pub struct Client {
    /// What all have in common.
    pub shared: Arc<Shared>,
    /// Its number.
    pub id: u64,
    /// It hears in the third version of the protocol.
    pub is_resp3: bool,
    parser: Parser,
    /// What was received and not carried out.
    input: Vec<u8>,
    /// Replies that there was no room for; those before `waiting_from` have gone out.
    waiting: Vec<u8>,
    waiting_from: usize,
    /// Once it has subscribed, until it has no subscription any more and nothing waits with its handle.
    subscriber: Option<Arc<Subscriber>>,
    channels: HashSet<Box<[u8]>>,
    /// Nothing more is carried out.
    quits: bool,
    /// Nothing more comes.
    ended: bool,
    /// Everything was sent, and the end of it.
    over: bool,
}

thread_local! {
    /// Where replies are written, for all connections of the thread.
    static REPLIES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes of replies that are sent before the next command is carried out, though more have come; and the most that a
/// buffer keeps room for.
const FULL_ENOUGH: usize = 64 * 1024;

impl Client {
    /// The client of a new connection.
    pub fn new(shared: Arc<Shared>) -> Self {
        let id = shared.ids.fetch_add(1, Relaxed) + 1;
        shared.clients.fetch_add(1, Relaxed);
        Self {
            shared,
            id,
            is_resp3: false,
            parser: Parser::default(),
            input: Vec::new(),
            waiting: Vec::new(),
            waiting_from: 0,
            subscriber: None,
            channels: HashSet::new(),
            quits: false,
            ended: false,
            over: false,
        }
    }

    /// Whether it has any subscription.
    pub fn has_subscribed(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Nothing that follows is carried out.
    pub fn quit(&mut self) {
        self.quits = true;
    }

    /// Subscribes to a channel.
    pub fn subscribe(
        &mut self,
        channel: &[u8],
        replies: &mut Replies<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), String> {
        let most = self.shared.settings.subscriptions;
        if self.channels.len() >= most && !self.channels.contains(channel) {
            return Err(format!("ERR a client may have {most} subscriptions (--subscriptions)"));
        }
        // Replies to what came before go first.
        self.send(replies.out, output);
        let subscriber = self.subscriber.get_or_insert_with(|| {
            Arc::new(Subscriber {
                id: self.id,
                handle: output.handle(),
                is_resp3: self.is_resp3,
                too_slow: AtomicBool::new(false),
            })
        });
        let new = !self.channels.contains(channel);
        replies.push(3);
        replies.bulk(b"subscribe");
        replies.bulk(channel);
        replies.integer((self.channels.len() + usize::from(new)) as i64);
        if new {
            let reply = mem::take(replies.out);
            if !self.shared.channels.subscribe(channel, subscriber, &reply) {
                return Err("ERR there are too many subscriptions".into());
            }
            self.channels.insert(channel.into());
        }
        Ok(())
    }

    /// Ends a subscription, or says that there was none.
    pub fn unsubscribe(&mut self, channel: Option<&[u8]>, replies: &mut Replies<'_>) {
        if let Some(channel) = channel
            && self.channels.remove(channel)
        {
            self.shared.channels.unsubscribe(channel, self.id);
        }
        replies.push(3);
        replies.bulk(b"unsubscribe");
        match channel {
            Some(channel) => replies.bulk(channel),
            None => replies.null(),
        }
        replies.integer(self.channels.len() as i64);
    }

    /// Ends all of them.
    pub fn unsubscribe_all(&mut self, replies: &mut Replies<'_>) {
        let all: Vec<_> = self.channels.iter().cloned().collect();
        if all.is_empty() {
            self.unsubscribe(None, replies);
        }
        all.iter().for_each(|channel| self.unsubscribe(Some(channel), replies));
    }

    /// Whether its last subscription has ended, and what it was sent by its handle is still to go out.
    fn is_leaving(&self) -> bool {
        self.subscriber.is_some() && self.channels.is_empty()
    }

    /// Forgets its handle, if it is leaving and nothing waits there: nobody else sends by it.
    fn leave(&mut self) {
        let most = self.shared.settings.output_bytes;
        let is_read = |it: &Arc<Subscriber>| !it.too_slow.load(Relaxed) && it.handle.room() == most;
        if self.channels.is_empty() && self.subscriber.as_ref().is_some_and(is_read) {
            self.subscriber = None;
        }
    }

    /// Sends replies, which are in `out`, as far as there is room: what is left waits.
    fn send(&mut self, out: &mut Vec<u8>, output: &mut Output<'_>) {
        if out.is_empty() {
            return;
        }
        if let Some(subscriber) = &self.subscriber {
            let _ = subscriber.send(out);
        } else if self.waiting.is_empty() {
            let fit = out.len().min(output.room());
            let _ = output.send(&out[..fit]);
            self.waiting.extend_from_slice(&out[fit..]);
        } else {
            self.waiting.extend_from_slice(out);
        }
        out.clear();
    }

    /// Carries out the commands that `input` begins with, and says how many bytes they are.
    fn carry_out(&mut self, input: &[u8], output: &mut Output<'_>) -> usize {
        let shared = Arc::clone(&self.shared);
        let now = shared.clock.now();
        let mut out = REPLIES.take();
        let mut parser = mem::take(&mut self.parser);
        let (mut done, mut count) = (0, 0);
        while !self.quits && self.waiting.is_empty() {
            if self.is_leaving() {
                self.send(&mut out, output);
                self.leave();
                if self.is_leaving() {
                    break;
                }
            }
            let rest = &input[done..];
            match parser.next(rest, shared.settings.command_bytes) {
                Ok(Some(bytes)) => {
                    let arguments = parser.arguments(rest);
                    if !arguments.is_empty() {
                        let is_resp3 = self.is_resp3;
                        // Replies to others may stand before it.
                        let most = out.len().saturating_add(shared.settings.reply_bytes);
                        let replies = Replies { out: &mut out, is_resp3, most, overflowed: false };
                        let mut context =
                            Context { client: self, arguments, replies, now: &now, output };
                        context.run();
                        if context.replies.overflowed {
                            output.close("a reply is longer than one may be (--reply-bytes)");
                            self.quits = true;
                        }
                        count += 1;
                    }
                    parser.begin();
                    done += bytes;
                }
                Ok(None) => break,
                Err(why) => {
                    Replies::unlimited(&mut out, false).error(&format!("ERR {why}"));
                    self.quits = true;
                }
            }
            if out.len() > FULL_ENOUGH {
                self.send(&mut out, output);
            }
        }
        self.send(&mut out, output);
        self.parser = parser;
        if out.capacity() <= 2 * FULL_ENOUGH {
            REPLIES.set(out);
        }
        shared.commands.fetch_add(count, Relaxed);
        if self.quits { input.len() } else { done }
    }

    /// Carries out what was received before.
    fn go_on(&mut self, output: &mut Output<'_>) {
        let mut input = mem::take(&mut self.input);
        let done = self.carry_out(&input, output);
        input.drain(..done);
        // One that is idle holds no memory.
        if !input.is_empty() {
            self.input = input;
        }
    }

    /// Finishes where nothing is left to be said.
    fn settle(&mut self, output: &mut Output<'_>) {
        if (self.quits || self.ended) && self.waiting.is_empty() {
            match &self.subscriber {
                // What it has asked for behind that is carried out first.
                Some(_) if self.is_leaving() => {}
                // Behind what it was sent.
                Some(subscriber) => subscriber.handle.close(),
                None => output.finish(),
            }
        }
        self.over |= output.is_finished();
    }
}

impl Handler for Client {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        if self.input.is_empty() {
            let done = self.carry_out(bytes, output);
            self.input.extend_from_slice(&bytes[done..]);
        } else if !self.quits {
            self.input.extend_from_slice(bytes);
            self.go_on(output);
        }
        self.settle(output);
    }

    fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let left = &self.waiting[self.waiting_from..];
        let fit = left.len().min(output.room());
        let _ = output.send(&left[..fit]);
        self.waiting_from += fit;
        if self.waiting_from == self.waiting.len() {
            (self.waiting, self.waiting_from) = (Vec::new(), 0);
            self.go_on(output);
        }
        self.settle(output);
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        let too_slow = self.subscriber.as_ref().is_some_and(|it| it.too_slow.load(Relaxed));
        if mail.take_wake() && too_slow {
            self.shared.channels.too_slow.fetch_add(1, Relaxed);
            return output
                .close("it reads more slowly than messages are published to it (--output-bytes)");
        }
        // What it was told before it subscribed goes first.
        if self.waiting.is_empty() {
            let had_any = !mail.bytes().is_empty();
            mail.send(output);
            if let Some(subscriber) = &self.subscriber
                && self.channels.is_empty()
                && mail.bytes().is_empty()
                && !output.is_finished()
            {
                if had_any {
                    // What this call brought counts as waiting until its end: so it goes on in a call of its own.
                    let _ = subscriber.handle.wake();
                } else {
                    self.subscriber = None;
                    self.go_on(output);
                    return self.settle(output);
                }
            }
            mail.finish(output);
        }
        self.over |= output.is_finished();
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        // What it has sent is still answered.
        self.ended = true;
        self.settle(output);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        // What was published to it before is still sent, and nothing more.
        self.shared.channels.leave(&self.channels, self.id);
        self.ended = true;
        self.settle(output);
    }

    fn asks(&self) -> Asks {
        let is_heard = self.subscriber.is_some() && !self.over;
        Asks::NOTHING.pause(!self.waiting.is_empty()).holds(!self.waiting.is_empty() || is_heard)
    }
}

/// However it goes, also by a panic, after which its handler is not told that it is closed.
impl Drop for Client {
    fn drop(&mut self) {
        self.shared.channels.leave(&self.channels, self.id);
        self.shared.clients.fetch_sub(1, Relaxed);
    }
}
