//! Runs of several generators that are taken for one.
//!
//! Each has a consent, a control connection and an account of its own. What is of the server and not of a datagram
//! (counters, drops, CPU time) is counted once, from when all have started: none sends before that. The window is the time
//! in which datagrams of all came.

use weir_lab::wire::Window;
use weir_load::audit::AuditReport;

use super::course::{Course, Cpu};
use super::window::{Reading, between};

/// One generator's run.
struct Part {
    run: u32,
    has_started: bool,
    /// Whether its generator has sent everything, or is lost.
    is_over: bool,
    /// What it sent, once that is known.
    sent: Option<u64>,
    /// What arrived of it, once it has ended.
    audit: Option<AuditReport>,
    has_ended: bool,
    /// Whether its end was signalled.
    signalled: bool,
    /// Whether its clock is the server's, or it is known how the two stand to one another.
    tells_latency: bool,
    cut_short: Option<String>,
    /// What had arrived at the last reading.
    seen: u64,
}

/// The runs that are one.
pub struct Together {
    of: usize,
    parts: Vec<Part>,
    /// Since all have started.
    course: Option<Course>,
    readings: AllCame,
}

/// The readings between which datagrams of all came.
#[derive(Default)]
struct AllCame {
    before: Option<Reading>,
    /// The first by which datagrams of all had come.
    first: Option<Reading>,
    /// The last after which datagrams of all still came.
    last: Option<Reading>,
}

impl AllCame {
    /// Adds a reading, and whether datagrams of all came since the one before.
    fn push(&mut self, now: Reading, all_came: bool) {
        if all_came {
            match self.first {
                None => self.first = Some(now),
                Some(_) => self.last = self.before,
            }
        }
        self.before = Some(now);
    }

    /// The window between them; an empty one where there was no such time.
    fn window(&self) -> Window {
        match (&self.first, &self.last) {
            (Some(first), Some(last)) if last.at_ns > first.at_ns => between(first, last),
            _ => Window::default(),
        }
    }
}

/// What came of them, once all have ended.
pub struct Ended {
    pub course: Option<Course>,
    pub window: Window,
    pub audit: Option<AuditReport>,
    pub signalled: bool,
    pub tells_latency: bool,
    pub cut_short: Option<String>,
}

impl Together {
    /// So many.
    pub fn of(of: usize) -> Self {
        Self { of, parts: vec![], course: None, readings: AllCame::default() }
    }

    /// A run was agreed.
    ///
    /// # Errors
    /// If there are as many as there are to be.
    pub fn begin(&mut self, run: u32, tells_latency: bool) -> Result<(), String> {
        if self.parts.len() == self.of {
            return Err(format!("all {} generators that were announced are here already", self.of));
        }
        self.parts.push(Part {
            run,
            has_started: false,
            is_over: false,
            sent: None,
            audit: None,
            has_ended: false,
            signalled: false,
            tells_latency,
            cut_short: None,
            seen: 0,
        });
        Ok(())
    }

    fn part(&mut self, run: u32) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.run == run)
    }

    fn all(&self, is: impl Fn(&Part) -> bool) -> bool {
        self.parts.len() == self.of && self.parts.iter().all(is)
    }

    /// The warm-up of a run is over. Gives whether all have started with it.
    pub fn start(&mut self, run: u32) -> bool {
        self.part(run).into_iter().for_each(|part| part.has_started = true);
        self.all(|part| part.has_started)
    }

    /// All have started: it is counted from here on.
    pub fn begin_course(&mut self, course: Course) {
        self.course = Some(course);
    }

    /// What is counted since all have started.
    pub fn course(&self) -> Option<&Course> {
        self.course.as_ref()
    }

    /// The same, to be changed.
    pub fn course_mut(&mut self) -> Option<&mut Course> {
        self.course.as_mut()
    }

    /// Takes a reading: what each run received by now, what was handled in all since all have started, and CPU time.
    pub fn read(&mut self, received: impl Fn(u32) -> u64, handled: u64, cpu: Cpu) {
        let Some(course) = &self.course else { return };
        let at_ns = course.elapsed_ns();
        let (mut datagrams, mut all_came) = (0, true);
        for part in &mut self.parts {
            let seen = match &part.audit {
                Some(audit) => audit.received,
                None => received(part.run),
            };
            all_came &= seen > part.seen;
            part.seen = seen;
            datagrams += seen;
        }
        let Cpu { process_ns: cpu_ns, threads_ns: threads_cpu_ns } = cpu;
        let now = Reading { at_ns, datagrams, handled, cpu_ns, threads_cpu_ns };
        self.readings.push(now, all_came);
    }

    /// A generator has sent everything, or is lost. Gives whether that holds for all now.
    pub fn all_sent(&mut self, run: u32) -> bool {
        self.part(run).into_iter().for_each(|part| part.is_over = true);
        self.all(|part| part.is_over)
    }

    /// Whether a run that is over waits for others to be: before that, nobody can say whether the sockets are empty.
    pub fn waits(&self, run: u32) -> bool {
        let is_over = self.parts.iter().any(|part| part.run == run && part.is_over);
        is_over && !self.all(|part| part.is_over)
    }

    /// A generator said what it sent. Gives what all sent, once that is known.
    pub fn sent(&mut self, run: u32, sent: u64) -> Option<u64> {
        self.part(run).into_iter().for_each(|part| part.sent = Some(sent));
        if !self.all(|part| part.is_over) {
            return None;
        }
        self.parts.iter().map(|part| part.sent).sum()
    }

    /// What all received by now.
    pub fn received(&self, received: impl Fn(u32) -> u64) -> u64 {
        let of = |part: &Part| match &part.audit {
            Some(audit) => audit.received,
            None => received(part.run),
        };
        self.parts.iter().map(of).sum()
    }

    /// A run has ended. Gives what came of all, with the last of them; the next ones are others then.
    pub fn end(
        &mut self,
        run: u32,
        audit: Option<AuditReport>,
        signalled: bool,
        cut_short: Option<String>,
    ) -> Option<Ended> {
        if let Some(part) = self.part(run) {
            (part.audit, part.signalled, part.cut_short) = (audit, signalled, cut_short);
            part.has_ended = true;
        }
        if !self.all(|part| part.has_ended) {
            return None;
        }
        let whole = std::mem::replace(self, Self::of(self.of));
        let mut ended = Ended {
            window: whole.readings.window(),
            course: whole.course,
            audit: None,
            signalled: true,
            tells_latency: true,
            cut_short: None,
        };
        for part in whole.parts {
            ended.signalled &= part.signalled;
            ended.tells_latency &= part.tells_latency;
            ended.cut_short = ended.cut_short.or(part.cut_short);
            match (&mut ended.audit, part.audit) {
                (Some(all), Some(one)) => all.merge(one),
                (None, one) => ended.audit = one,
                (Some(_), None) => {}
            }
        }
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_the_time_in_which_datagrams_of_all_came() {
        let mut readings = AllCame::default();
        // One begins late, pauses once in between, and ends early.
        let came = [false, false, true, true, false, true, true, false, false];
        for (at, all_came) in came.into_iter().enumerate() {
            let at_ns = 10 * at as u64;
            let datagrams = 7 * at_ns;
            let reading = Reading {
                at_ns,
                datagrams,
                handled: datagrams,
                cpu_ns: None,
                threads_cpu_ns: None,
            };
            readings.push(reading, all_came);
        }
        let window = readings.window();
        assert_eq!((window.elapsed_ns, window.datagrams), (30, 210), "from 20 to 50");
        assert_eq!(AllCame::default().window(), Window::default());
    }

    #[test]
    fn a_run_is_over_when_those_of_all_generators_are() {
        let mut together = Together::of(2);
        assert_eq!(together.begin(1, true), Ok(()));
        assert!(!together.start(1), "the other is not here yet");
        assert_eq!(together.begin(2, false), Ok(()));
        assert!(together.begin(3, true).unwrap_err().contains("all 2 generators"));
        assert!(together.start(2));
        assert!(!together.waits(1));
        assert!(!together.all_sent(1));
        assert!(together.waits(1) && !together.waits(2));
        assert_eq!(together.sent(1, 10), None, "what the other sent is not known");
        assert!(together.all_sent(2));
        assert!(!together.waits(1));
        assert_eq!(together.sent(1, 10), None);
        assert_eq!(together.sent(2, 5), Some(15));
        assert_eq!(together.received(|run| u64::from(run) * 100), 300);
        assert!(together.end(1, None, true, None).is_none());
        let ended = together.end(2, None, false, Some("cut".into())).expect("both have ended");
        assert!(!ended.signalled && !ended.tells_latency);
        assert_eq!(ended.cut_short.as_deref(), Some("cut"));
        assert_eq!(together.begin(4, true), Ok(()), "the next ones are another run");
    }
}
