//! The provider against the kernel it runs on, over loopback: every form of polling, on one
//! thread and handed over.

mod ends;
mod injected;
mod receiving;
mod sending;

use super::*;
use crate::{
    counters::Counters,
    memory::{RegionOptions, Slice},
    required::cannot_run,
    rio::{
        Completion, HandOver, OneThread,
        provider_tests::{self, PATIENCE, payload, peer},
    },
};
use std::{net::UdpSocket, time::Duration};

/// Runs each test under every form.
macro_rules! under_every_form {
    ($($test:ident),* $(,)?) => {
        under_every_form!(@ deferred OneThread Deferred: $($test),*);
        under_every_form!(@ armed OneThread Armed: $($test),*);
        under_every_form!(@ interrupt OneThread Interrupt: $($test),*);
        under_every_form!(@ kernel_thread OneThread KernelThread: $($test),*);
        under_every_form!(@ handed_over HandOver Deferred: $($test),*);
        under_every_form!(@ interrupt_handed_over HandOver Interrupt: $($test),*);
        under_every_form!(@ kernel_thread_handed_over HandOver KernelThread: $($test),*);
    };
    (@ $form:ident $Threading:ident $Polling:ident: $($test:ident),*) => {
        mod $form {
            $(#[test]
            fn $test() {
                use crate::rio::{$Threading, uring::Polling};
                if super::cannot_run_here::<$Threading>(Polling::$Polling) {
                    return;
                }
                super::$test::<$Threading>(Polling::$Polling);
            })*
        }
    };
}
use under_every_form;

/// Queues on loopback.
type Rig<T> = provider_tests::Rig<T, Uring>;

/// What the tests ask for where they do not care.
const NEEDS: Needs =
    Needs { payload: 200, receives: 64, sends: 0, per_dequeue: 32, offload: false, meta: false };

fn loopback() -> Endpoint {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()
}

impl<T: Sharing> Rig<T> {
    fn new(polling: Polling, needs: Needs, endpoints: &[Endpoint]) -> Self {
        Self::open(&Uring::polling(polling), needs, 0, endpoints).unwrap()
    }
}

fn region<T: Sharing>(uring: &Uring, needs: &Needs) -> Arc<Region> {
    let layout = Provider::<T>::layout(uring, needs).unwrap();
    Region::new(layout, needs.receives + needs.sends, RegionOptions::default()).unwrap()
}

fn cannot_run_here<T: Sharing>(polling: Polling) -> bool {
    let uring = Uring::polling(polling);
    cannot_run(uring.name(), Provider::<T>::layout(&uring, &NEEDS))
}
