//! What the measured server does with a datagram: it audits it, works on it, and answers it
//! if that was asked for.

use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError},
};

use super::hold::Hold;
use super::ports::Recorder;
use super::rest::Rest;
use weir::udp::{Datagram, Handler, Outbox, Replies};
use weir_lab::udp::plan::Work;
use weir_load::audit::Auditor;

/// The work that is done on what comes.
#[derive(Debug, Clone)]
pub struct Labour {
    steps: u32,
    random: u32,
    /// The state that all work on, if that is what they do.
    shared: Option<Arc<Mutex<u32>>>,
}

impl Labour {
    /// As much as is asked for. Its clones share the state, where there is one to be shared.
    pub fn new(work: Work) -> Self {
        let shared = work.shared.then(|| Arc::new(Mutex::new(1)));
        Self { steps: work.steps, random: 1, shared }
    }

    /// A step on a state that others have, too.
    #[cfg(test)]
    pub fn of(shared: &Arc<Mutex<u32>>) -> Self {
        Self { steps: 0, random: 1, shared: Some(Arc::clone(shared)) }
    }

    /// Does it once.
    #[inline]
    pub fn work(&mut self) {
        match &self.shared {
            None => self.random = steps(self.random, self.steps),
            Some(shared) => {
                let mut random = shared.lock().unwrap_or_else(PoisonError::into_inner);
                *random = steps(*random, self.steps);
            }
        }
        black_box(self.random);
    }
}

/// The handler of one thread.
pub struct Measured {
    auditor: Auditor,
    labour: Labour,
    reply: Option<Reply>,
    /// What holds it up, where anything does.
    hold: Option<Arc<Hold>>,
    /// What counts who sends to which port, where that is asked for.
    ports: Option<Recorder>,
    /// Who is woken by datagrams, where anybody is.
    rest: Option<Rest>,
}

impl Measured {
    /// What one thread does.
    pub fn new(
        auditor: Auditor,
        labour: Labour,
        reply: Option<Reply>,
        hold: Option<Arc<Hold>>,
    ) -> Self {
        Self { auditor, labour, reply, hold, ports: None, rest: None }
    }

    /// The same, which counts who sends to which port.
    pub fn counting(self, ports: Option<Recorder>) -> Self {
        Self { ports, ..self }
    }

    /// The same, which wakes who rests while nothing comes.
    pub fn waking(self, rest: Rest) -> Self {
        Self { rest: Some(rest), ..self }
    }
}

/// What a datagram is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// All of it.
    Whole,
    /// So many bytes of its beginning, or all where it has no more.
    Beginning(usize),
}

impl Reply {
    /// Bytes of the answer to a datagram of so many.
    pub fn bytes(self, size_bytes: usize) -> usize {
        match self {
            Self::Whole => size_bytes,
            Self::Beginning(most) => most.min(size_bytes),
        }
    }
}

/// Makes the handlers of all threads: each with an auditor of its own.
pub fn handlers(
    auditor: impl Fn() -> Auditor + Send + 'static,
    work: Work,
    reply: Option<Reply>,
    hold: Option<Arc<Hold>>,
    ports: impl Fn() -> Option<Recorder> + Send + 'static,
    rest: Rest,
) -> impl FnMut(usize) -> Measured + Send + 'static {
    let labour = Labour::new(work);
    move |_| {
        let measured = Measured::new(auditor(), labour.clone(), reply, hold.clone());
        measured.counting(ports()).waking(rest.clone())
    }
}

impl Handler for Measured {
    #[inline]
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        if let Some(hold) = &self.hold {
            hold.pass();
        }
        if let Some(ports) = &self.ports {
            ports.record(&datagram);
        }
        self.auditor.record_now(datagram.source.ip(), datagram.bytes);
        self.labour.work();
        // A refusal is counted by the server and shown in its report.
        let _ = match self.reply {
            None => return,
            Some(Reply::Beginning(most)) if most < datagram.bytes.len() => {
                replies.send(&datagram.bytes[..most])
            }
            Some(_) => replies.echo(),
        };
    }

    #[inline]
    fn on_batch_end(&mut self, _outbox: &mut Outbox<'_>) {
        if let Some(rest) = &self.rest {
            rest.datagrams_came();
        }
    }
}

/// This many and one steps, as the originals' "workload" did.
#[inline]
fn steps(mut random: u32, count: u32) -> u32 {
    for _ in 0..=count {
        random = step(random);
    }
    black_box(random)
}

/// One step of a linear congruential generator (the constants of Numerical Recipes).
#[inline]
fn step(random: u32) -> u32 {
    random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_work_is_on_one_state() {
        let audit = weir_load::audit::Audit::new();
        let work = |shared| Work { steps: 2, shared };
        let of_all = |work| {
            let audit = audit.clone();
            let rest = Rest::new(std::sync::mpsc::channel().0);
            let mut make = handlers(move || audit.auditor(), work, None, None, || None, rest);
            (make(0).labour.shared, make(1).labour.shared)
        };
        let (Some(one), Some(other)) = of_all(work(true)) else { panic!("each has the state") };
        assert!(Arc::ptr_eq(&one, &other));
        assert!(matches!(of_all(work(false)), (None, None)));
    }

    #[test]
    fn work_is_that_many_and_one_steps() {
        assert_eq!(steps(1, 0), step(1));
        assert_eq!(steps(1, 2), step(step(step(1))));
    }
}
