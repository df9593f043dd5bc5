//! The metrics of a TCP server.

use std::sync::Arc;

use weir::counters::names::{CALLS, TCP};
use weir::counters::os::Sampler;
use weir::tcp::Running;

use super::{About, Kind, batches, now, write_counters, write_process};

/// Makes the page, again and again.
pub fn pages(about: About, running: Arc<Running>) -> impl FnMut() -> String {
    let began = now();
    let mut sampler = Sampler::new();
    move || {
        let counters = running.counters();
        let mut page = about.page();
        page.one(
            Kind::Gauge,
            "weir_connections_open",
            "Connections that are open.",
            Some(u64::from(running.open())),
        );
        page.one(
            Kind::Gauge,
            "weir_connections_open_peak",
            "The most connections that were open at the same time.",
            Some(u64::from(running.most_open())),
        );
        write_counters(&mut page, TCP, &counters.named());
        page.histogram(
            "weir_batch_connections",
            "Connections served per wake-up, without wake-ups that found nothing. Their sum is not counted.",
            &batches(&counters.batches, None),
        );
        write_counters(&mut page, CALLS, &running.calls().named());
        let threads = running.thread_ids().len() as u64;
        page.one(Kind::Gauge, "weir_threads", "Threads of the server.", Some(threads));
        write_process(&mut page, &sampler.process(), began);
        page.text()
    }
}
