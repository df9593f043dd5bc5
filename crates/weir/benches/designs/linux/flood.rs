//! A flood with segmentation offload from a thread of this process on a core of its own.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

const DATAGRAM_BYTES: usize = 64;
const SEGMENTS: usize = 64;

pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Flood {
    pub fn start(to: SocketAddr, core: usize) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(to).expect("loopback");
        let segment = DATAGRAM_BYTES as libc::c_int;
        // SAFETY: the option's value is an int that lives through the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const segment).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(result, 0, "UDP_SEGMENT: {}", io::Error::last_os_error());
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            weir::affinity::pin_current_thread(core).expect("this process may use that core");
            let bytes = [0x5a; DATAGRAM_BYTES * SEGMENTS];
            while !stopping.load(Relaxed) {
                let _ = socket.send(&bytes); // refused once the receiver has gone
            }
        });
        Self { stop, thread }
    }

    pub fn stop(self) {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("the flood does not panic");
    }
}
