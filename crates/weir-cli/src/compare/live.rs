//! `--live`: what every row does, as a table on the whole terminal that changes with every run.

use std::io::{self, Stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Gauge, Paragraph, Row as Shown, Sparkline, Table};
use weir_lab::child::Interrupt;
use weir_lab::experiment::cell::{Better, Metric};
use weir_lab::experiment::course::Progress;
use weir_lab::experiment::plan::Row;
use weir_lab::report::Reported;
use weir_lab::report::number::UNKNOWN;
use weir_lab::stats::median;

/// Lines of messages that are kept on the screen.
const MESSAGES: usize = 4;
/// How long a key may wait, and the end of all for who waits for keys.
const KEYS_EVERY: Duration = Duration::from_millis(100);
/// Columns of a bar.
const BAR: usize = 10;

/// The terminal, taken over until this is dropped.
pub struct Live {
    terminal: ratatui::Terminal<CrosstermBackend<Stderr>>,
    table: Standing,
    keys: Keys,
}

impl Live {
    /// Takes the terminal over. Ctrl-C, q and Escape interrupt.
    ///
    /// # Errors
    /// What the terminal refuses.
    pub fn begin(interrupt: Interrupt) -> io::Result<Self> {
        let terminal = ratatui::Terminal::new(CrosstermBackend::new(io::stderr()))?;
        enable_raw_mode()?;
        // From here on it is given back whatever happens.
        let mut live = Self { terminal, table: Standing::default(), keys: Keys::heed(interrupt) };
        execute!(io::stderr(), EnterAlternateScreen)?;
        live.terminal.hide_cursor()?;
        live.terminal.clear()?;
        Ok(live)
    }

    /// Notes what happened.
    pub fn note<K: Reported>(&mut self, progress: &Progress<K>, title: fn(&Row) -> String) {
        self.table.note(progress, title);
    }

    /// Notes a figure of a row, where less is better.
    pub fn figure(&mut self, title: &str, figure: f64, text: fn(f64) -> String) {
        self.table.heading = "Kernel memory of servers that wait".into();
        self.table.lower = true;
        self.table.add(title.to_owned(), figure, text, vec![]);
    }

    /// Notes a line that would stay.
    pub fn say(&mut self, line: &str) {
        self.table.messages.push(line.to_owned());
    }

    /// Shows how it stands; `elapsed` is the share of the time (0 to 1), and what is done now.
    pub fn show(&mut self, elapsed: f64, now: &str) {
        let table = &self.table;
        // What cannot be shown is not worth what is measured.
        let _ = self.terminal.draw(|frame| draw(frame, table, elapsed, now));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.keys.end();
        let _ = execute!(io::stderr(), LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = self.terminal.show_cursor();
        for message in &self.table.messages {
            say!("{message}");
        }
    }
}

/// Who waits for keys: in raw mode the terminal makes no signal of Ctrl-C.
struct Keys {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    fn heed(interrupt: Interrupt) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let heed = move || {
            while !ends.load(Ordering::Relaxed) {
                match event::poll(KEYS_EVERY) {
                    Ok(true) if event::read().is_ok_and(|event| interrupts(&event)) => {
                        interrupt.raise();
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("keys".into()).spawn(heed).ok();
        Self { over, thread }
    }

    fn end(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn interrupts(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

/// How every row stands under the load that runs.
#[derive(Default)]
struct Standing {
    /// What is compared, and under which load.
    heading: String,
    /// Of the figures behind the rate.
    columns: Vec<String>,
    rows: Vec<RowNow>,
    /// Whether a small figure is a good one.
    lower: bool,
    /// The last ones are shown; all are said once the terminal is given back.
    messages: Vec<String>,
}

/// A row, with what its runs gave.
struct RowNow {
    title: String,
    /// By run.
    figures: Vec<f64>,
    /// The last one, in words.
    last: String,
    /// The median of all, in words.
    median: String,
    /// Other figures of the last run, by column.
    others: Vec<String>,
}

impl Standing {
    fn note<K: Reported>(&mut self, progress: &Progress<K>, title: fn(&Row) -> String) {
        match progress {
            Progress::Load(load, _) => {
                self.heading = format!("{}: {load}", K::UNIT.title);
                self.rows.clear();
            }
            Progress::Measured { load, row, sample } => {
                let by = K::ranked_by(load);
                let columns: Vec<&Metric<K::Sample>> = shown::<K>(by).collect();
                self.columns = columns.iter().map(|of| of.heading.replace('\n', " ")).collect();
                self.lower = by.better == Better::Lower;
                let Some(figure) = (by.of)(sample) else { return };
                let words = |of: &&Metric<K::Sample>| {
                    (of.of)(sample).map_or_else(|| UNKNOWN.to_owned(), of.text)
                };
                self.add(title(row), figure, by.text, columns.iter().map(words).collect());
            }
            _ => {}
        }
    }

    /// Adds what a run of a row gave.
    fn add(&mut self, title: String, figure: f64, text: fn(f64) -> String, others: Vec<String>) {
        let known = self.rows.iter().position(|now| now.title == title);
        let (last, median_of) =
            (text(figure), |of: &[f64]| median(of).map(text).unwrap_or_default());
        match known.map(|at| &mut self.rows[at]) {
            Some(now) => {
                now.figures.push(figure);
                (now.last, now.median, now.others) = (last, median_of(&now.figures), others);
            }
            None => {
                let figures = vec![figure];
                let median = median_of(&figures);
                self.rows.push(RowNow { title, figures, last, median, others });
            }
        }
    }

    /// The rows, best first.
    fn ordered(&self) -> Vec<&RowNow> {
        let figure = |row: &RowNow| median(&row.figures).unwrap_or(0.0);
        let mut rows: Vec<&RowNow> = self.rows.iter().collect();
        rows.sort_by(|a, b| match self.lower {
            true => figure(a).total_cmp(&figure(b)),
            false => figure(b).total_cmp(&figure(a)),
        });
        rows
    }
}

/// What is shown besides the figure that rows are ranked by.
fn shown<K: Reported>(by: &Metric<K::Sample>) -> impl Iterator<Item = &'static Metric<K::Sample>> {
    K::UNIT.live.iter().copied().filter(move |metric| metric.name != by.name)
}

fn draw(frame: &mut Frame, now: &Standing, elapsed: f64, doing: &str) {
    let messages = now.messages.len().min(MESSAGES);
    let heights = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(2),
        Constraint::Length(messages as u16),
        Constraint::Length(1),
    ];
    let [heading, gauge, table, history, said, keys] =
        Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Line::from(now.heading.as_str()).bold(), heading);
    let bar = Gauge::default().ratio(elapsed.clamp(0.0, 1.0)).label(doing).use_unicode(true);
    frame.render_widget(bar.gauge_style(Style::new().cyan()), gauge);
    let rows = now.ordered();
    let largest = rows.iter().filter_map(|row| median(&row.figures)).fold(0.0, f64::max);
    let line = |row: &&RowNow| {
        let share = median(&row.figures).map_or(0.0, |figure| figure / largest);
        let length = (share * BAR as f64).round() as usize;
        let bar = "█".repeat(length.min(BAR));
        let fields = [row.title.clone(), row.median.clone(), bar, row.last.clone()];
        let runs = [row.figures.len().to_string()];
        fields.into_iter().chain(row.others.iter().cloned()).chain(runs).collect::<Vec<_>>()
    };
    let titles = rows.iter().map(|row| row.title.chars().count()).max().unwrap_or(6);
    let others = now.columns.iter().map(|name| name.chars().count().max(6));
    let widths = [titles, 7, BAR, 7].into_iter().chain(others).chain([4]).collect::<Vec<usize>>();
    let shown = fitting(&widths, usize::from(frame.area().width));
    let headings = ["design", "median", "", "last"].into_iter().map(str::to_owned);
    let headings = headings.chain(now.columns.iter().cloned()).chain(["runs".to_owned()]);
    let of_shown = |fields: Vec<String>| {
        let cells = shown.iter().map(|place| fields.get(*place).cloned().unwrap_or_default());
        Shown::new(cells.map(Cell::from).collect::<Vec<_>>())
    };
    let headings = of_shown(headings.collect()).bold();
    let widths = shown.iter().map(|place| Constraint::Length(widths[*place] as u16));
    let line = |row: &&RowNow| of_shown(line(row));
    frame.render_widget(Table::new(rows.iter().map(line), widths).header(headings), table);
    if let Some(best) = rows.first() {
        let [name, line] = Layout::vertical([Constraint::Length(1); 2]).areas(history);
        frame.render_widget(Line::from(format!("{}, run by run:", best.title)).dim(), name);
        let most = best.figures.iter().copied().fold(0.0, f64::max);
        let heights = best.figures.iter().map(|figure| (figure / most * 1000.0) as u64);
        frame.render_widget(Sparkline::default().data(heights.collect::<Vec<_>>()).max(1000), line);
    }
    let last = &now.messages[now.messages.len() - messages..];
    let last: Vec<Line> = last.iter().map(|line| Line::from(line.as_str()).yellow()).collect();
    frame.render_widget(Paragraph::new(last), said);
    frame.render_widget(Line::from("q or Ctrl-C: stop and report what was measured").dim(), keys);
}

/// The columns of these widths that fit into so many characters: where they do not, those behind the last figure are left
/// out, the last first, then the bar and the last figure. Name, median and the number of runs stay.
fn fitting(widths: &[usize], width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    let runs = widths.len().saturating_sub(1);
    let leave = (4..runs).rev().chain([2, 3]).filter(|place| *place < runs);
    for place in leave {
        let needed = shown.iter().map(|place| widths[*place] + 1).sum::<usize>();
        if needed <= width + 1 {
            break;
        }
        shown.retain(|of| *of != place);
    }
    shown
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    fn row(title: &str, figures: &[f64]) -> RowNow {
        RowNow {
            title: title.into(),
            figures: figures.to_vec(),
            last: format!("{} k", figures[figures.len() - 1]),
            median: format!("{} k", median(figures).unwrap()),
            others: vec!["900".into(), "58".into()],
        }
    }

    fn screen(width: u16, height: u16, now: &Standing) -> String {
        let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, now, 0.4, "run 4 of 9: epoll")).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn standing() -> Standing {
        Standing {
            heading: "UDP: saturation, 64 B".into(),
            columns: vec!["CPU ns/dgram".into(), "batch p50".into()],
            rows: vec![row("epoll", &[300.0, 320.0]), row("rio-hybrid", &[800.0, 900.0, 1000.0])],
            lower: false,
            messages: vec!["port failed: no memory".into()],
        }
    }

    #[test]
    fn the_best_row_stands_first_with_its_figures() {
        let text = screen(100, 14, &standing());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "UDP: saturation, 64 B");
        assert!(lines[1].contains("run 4 of 9: epoll"), "{text}");
        assert!(lines[2].starts_with("design") && lines[2].contains("batch p50"), "{text}");
        let first: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(first, ["rio-hybrid", "900", "k", "██████████", "1000", "k", "900", "58", "3"]);
        assert!(lines[4].starts_with("epoll"), "{text}");
        assert!(
            text.contains("rio-hybrid, run by run:") && text.contains("port failed: no memory")
        );
    }

    #[test]
    fn where_less_is_better_the_least_stands_first() {
        let text = screen(100, 14, &Standing { lower: true, ..standing() });
        assert!(text.lines().nth(3).unwrap().starts_with("epoll"), "{text}");
    }

    #[test]
    fn names_stay_whole_where_other_columns_can_go() {
        let title = "rio-hybrid-reader --threads 2 --provider uring on the best provider";
        let mut now = standing();
        now.rows.push(row(title, &[500.0, 510.0]));
        let text = screen(80, 14, &now);
        let line = text.lines().find(|line| line.starts_with(title));
        assert!(line.is_some_and(|line| line.ends_with(" 2") && line.contains("505 k")), "{text}");
        assert!(!text.contains("batch p50"), "{text}");
    }

    #[test]
    fn no_terminal_is_too_small() {
        for (width, height) in [(1, 1), (10, 3), (20, 5), (80, 6)] {
            screen(width, height, &standing());
            screen(width, height, &Standing::default());
        }
    }

    #[test]
    fn only_ctrl_c_q_and_escape_interrupt() {
        let press = |code, modifiers| Event::Key(event::KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert!(interrupts(&press(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(
            interrupts(&press(KeyCode::Char('q'), none)) && interrupts(&press(KeyCode::Esc, none))
        );
        assert!(!interrupts(&press(KeyCode::Char('c'), none)) && !interrupts(&Event::FocusGained));
    }
}
