//! A browser without a window, told what to do over a pair of pipes (the DevTools protocol).

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};

use crate::common::SOON;

/// Names that Chromium has.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser with one page; it is ended when dropped.
pub struct Browser {
    child: Child,
    answers: Receiver<Value>,
    session: Option<String>,
    last: u64,
    profile: PathBuf,
    width: u32,
    /// What happened without being asked for.
    pub events: Vec<Value>,
}

/// An image as it was on the screen.
pub struct Image {
    pub width: usize,
    pub height: usize,
    /// Red, green and blue of each pixel.
    pub pixels: Vec<[u8; 3]>,
}

impl Image {
    /// The pixel that is there most often.
    pub fn background(&self) -> [u8; 3] {
        let mut counts = std::collections::HashMap::new();
        for pixel in &self.pixels {
            *counts.entry(*pixel).or_insert(0_usize) += 1;
        }
        counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(pixel, _)| pixel)
            .unwrap_or_default()
    }

    /// Pixels that are clearly another colour than the background.
    pub fn drawn(&self) -> usize {
        let background = self.background();
        let differs = |pixel: &&[u8; 3]| {
            let apart = pixel.iter().zip(background).map(|(a, b)| u32::from(a.abs_diff(b)));
            apart.sum::<u32>() > 60
        };
        self.pixels.iter().filter(differs).count()
    }

    /// Pixels that have a colour, not a grey.
    pub fn coloured(&self) -> usize {
        let is_coloured = |pixel: &&[u8; 3]| {
            let most = pixel.iter().max().copied().unwrap_or(0);
            let least = pixel.iter().min().copied().unwrap_or(0);
            most - least > 60
        };
        self.pixels.iter().filter(is_coloured).count()
    }
}

/// The name under which a browser is here.
pub fn name() -> Option<&'static str> {
    let found = |name: &&&str| {
        let mut command = Command::new(**name);
        let ran = command.arg("--version").stdin(Stdio::null()).output();
        ran.is_ok_and(|output| output.status.success())
    };
    NAMES.iter().find(found).copied()
}

impl Browser {
    /// Starts it with an empty page. `test` names its folder.
    pub fn start(name: &str, test: &str) -> Self {
        let profile =
            std::env::temp_dir().join(format!("weir-browser-{test}-{}", std::process::id()));
        // It reads what it is told from descriptor 3, and answers on 4.
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#)
            .arg(name)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut out = child.stdout.take().expect("piped");
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut buffer, mut read) = (vec![], [0; 1 << 16]);
            while let Ok(count @ 1..) = out.read(&mut read) {
                buffer.extend_from_slice(&read[..count]);
                while let Some(end) = buffer.iter().position(|byte| *byte == 0) {
                    let message: Vec<u8> = buffer.drain(..=end).collect();
                    let value =
                        serde_json::from_slice(&message[..end]).expect("a message of the browser");
                    if sender.send(value).is_err() {
                        return;
                    }
                }
            }
        });
        let mut browser =
            Self { child, answers, session: None, last: 0, profile, width: 0, events: vec![] };
        let targets = browser.call("Target.getTargets", json!({}));
        let all = targets["targetInfos"].as_array().expect("targets");
        let page = all.iter().find(|target| target["type"] == "page").expect("a page");
        let attached = browser.call(
            "Target.attachToTarget",
            json!({ "targetId": page["targetId"], "flatten": true }),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Asks for something, and waits for the answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let input = self.child.stdin.as_mut().expect("piped");
        input
            .write_all(message.to_string().as_bytes())
            .and_then(|()| input.write_all(&[0]))
            .expect("the browser reads");
        input.flush().expect("the browser reads");
        loop {
            let mut answer = self.next();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn next(&mut self) -> Value {
        self.answers.recv_timeout(SOON).expect("the browser answers")
    }

    /// Opens a file in a window of this width, in a dark theme or a light one, and waits until it is loaded.
    pub fn open(&mut self, path: &Path, width: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let theme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.call("Emulation.setEmulatedMedia", media);
        self.load(path);
    }

    /// Loads a file, and waits until it is loaded.
    fn load(&mut self, path: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", path.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next();
            self.events.push(event);
        }
    }

    /// Opens a file in a window that shows its first picture without scrolling, and gives the ms from when it was asked for
    /// until a frame with that picture was made.
    pub fn first_picture_ms(&mut self, path: &Path) -> f64 {
        // A task that is begun in the callback for a frame runs when that frame has been made.
        const LOOK: &str = "(() => {
            const look = () => {
                const picture = document.querySelector('svg[data-plot]');
                const box = picture && picture.getBoundingClientRect();
                if (!box || box.height === 0) return requestAnimationFrame(look);
                requestAnimationFrame(() => setTimeout(() => { window.firstPicture = performance.now(); }));
            };
            look();
        })()";
        let script = self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": LOOK }));
        self.resize(1280, 6000);
        self.load(path);
        let drawn = "new Promise(told => {
            const ask = () => window.firstPicture ? told(window.firstPicture) : requestAnimationFrame(ask);
            ask();
        })";
        let ms = self.value(drawn).as_f64().expect("a number");
        let removed = json!({ "identifier": script["identifier"] });
        self.call("Page.removeScriptToEvaluateOnNewDocument", removed);
        ms
    }

    fn resize(&mut self, width: u32, height: u64) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.width = width;
    }

    /// Makes the window as high as the page.
    pub fn show_all(&mut self) {
        let height =
            self.value("document.documentElement.scrollHeight").as_u64().expect("a number");
        self.resize(self.width, height);
    }

    /// Whether scripts of the page run, from the next page on.
    pub fn allow_scripts(&mut self, allowed: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !allowed }));
    }

    /// What an expression is in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].take()
    }

    /// Presses a key where the focus is.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "code": key }));
        }
    }

    /// Moves the pointer to a place in the window.
    pub fn point_at(&mut self, x: f64, y: f64) {
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    /// What is to be seen in a part of the window, of this place and size.
    pub fn image(&mut self, [x, y, width, height]: [f64; 4]) -> Image {
        let clip = json!({ "x": x, "y": y, "width": width, "height": height, "scale": 1 });
        let shot = self.call("Page.captureScreenshot", json!({ "clip": clip }));
        let file = decoded(shot["data"].as_str().expect("an image"));
        let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
        let mut reader = decoder.read_info().expect("a PNG file");
        let mut bytes = vec![0; reader.output_buffer_size().expect("an image of a usual size")];
        let info = reader.next_frame(&mut bytes).expect("a PNG file");
        let samples = info.color_type.samples();
        let pixels =
            bytes[..info.buffer_size()].chunks(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]);
        Image { width: info.width as usize, height: info.height as usize, pixels: pixels.collect() }
    }

    /// The page as a PDF file.
    pub fn printed(&mut self) -> Vec<u8> {
        let printed = self.call("Page.printToPDF", json!({ "printBackground": true }));
        decoded(printed["data"].as_str().expect("a file"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // All of these fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// What a text in base 64 says.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} is no digit in base 64"),
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').map(digit).collect();
    let of_group = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, digit| bits << 6 | u32::from(*digit))
            << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(of_group).collect()
}
