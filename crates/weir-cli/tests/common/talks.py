"""A receiver that talks with weir. It counts, and keeps the proofs of reading. With an argument it goes wrong, or cheats."""
import json, os, random, selectors, socket, struct, sys, time

wrong = sys.argv[1] if len(sys.argv) > 1 else ""
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setblocking(False)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, wrong == "second")
second = None
handled = before = mask = began = 0
# The first flow of each run among those of all that are open.
runs, flows = {}, 0
reply = None
proofs = []

def say(answer):
    print(json.dumps(answer), flush=True)

def received():
    if wrong == "invents":
        return int((time.monotonic() - began) * 4e6)
    return (handled - before) * (2 if wrong == "doubles" else 1)

def answer(ask):
    global runs, flows, before, mask, proofs, second, began, reply
    what = ask["ask"]
    if what == "serve":
        ip, port = ask["address"].rsplit(":", 1)
        receiver.bind((ip, int(port)))
        if wrong not in ("invents", "copies"):
            selector.register(receiver, selectors.EVENT_READ)
        address = "%s:%d" % receiver.getsockname()
        if wrong == "elsewhere":
            address = "127.0.0.1:9"
        if wrong == "cannot":
            return say({"error": {"message": "no such mechanism here", "unavailable": True}})
        settings = {"library": "python " + sys.version.split()[0]}
        reply = ask.get("reply_bytes")
        if reply and wrong != "mute":
            settings["reply-bytes"] = str(reply)
        if ask.get("runs_together") and wrong != "single":
            settings["runs-together"] = str(ask["runs_together"])
        say({"ready": {"address": address, "settings": settings}})
        if wrong == "child":
            hand_over()
    elif what in ("begin", "start"):
        if what == "begin":
            if not ask.get("beside"):
                runs, flows = {}, 0
            runs[ask["run"]] = flows
            flows += ask["flows"]
        before, mask, proofs = handled, 0, []
        began = time.monotonic()
        if wrong == "second" and what == "start":
            second = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            second.bind(receiver.getsockname())
        say({"ok": True})
    elif what == "count":
        if wrong == "dies":
            print("as it was told", file=sys.stderr)
            sys.exit(7)
        say({"received": received() * (2 if wrong == "inflates" else 1), "handled": handled})
    elif what == "end":
        if second:
            second.close()
        account = {"received": received(), "proof": {"mask": mask, "datagrams": proofs}}
        # One that is honest as long as it is checked, which is by several flows.
        if wrong == "turns" and len(ask["sent_per_flow"]) == 1:
            account["received"] *= 2
        if wrong == "copies":
            account["received"] = sum(ask["sent_per_flow"])
        if wrong == "guesses":
            sent = range(min(ask["sent_per_flow"][0], 4096))
            account["proof"]["datagrams"] = [[0, n, random.getrandbits(24)] for n in sent]
        if wrong == "wide":
            account["proof"] = {"mask": 2**32 - 1, "datagrams": []}
        if wrong == "blind":
            del account["proof"]
        if wrong == "late":
            account["latency_histogram"] = [[1, account["received"]]]
        say(account)

def hand_over():
    "Lets a child go on. This process only passes on what is asked and answered."
    global selector
    (asked, ask), (answered, reply) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.dup2(asked, 0)
        os.dup2(reply, 1)
        [os.close(end) for end in (asked, ask, answered, reply)]
        # The selector that was inherited is that of both.
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        selector.register(receiver, selectors.EVENT_READ)
        return
    os.close(asked)
    os.close(reply)
    answers = os.fdopen(answered)
    for line in sys.stdin.buffer:
        os.write(ask, line)
        print(answers.readline(), end="", flush=True)
    os.close(ask)
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))

def keep(datagram):
    global mask, proofs
    if len(datagram) < 32:
        return
    flow, its_run = struct.unpack_from("<HI", datagram, 6)
    numbers, = struct.unpack_from("<Q", datagram, 16)
    proof = numbers >> 40
    if proof & mask or its_run not in runs:
        return
    proofs.append((runs[its_run] + flow, numbers & (1 << 40) - 1, proof))
    while len(proofs) > 4096:
        mask = mask << 1 | 1
        proofs = [shown for shown in proofs if shown[2] & mask == 0]

def receive():
    global handled
    try:
        for _ in range(100):
            if wrong in ("blind", "guesses", "wide"):
                receiver.recv_into(bytearray(1), 1, socket.MSG_TRUNC)
            else:
                datagram, source = receiver.recvfrom(65536)
                keep(datagram)
                if reply:
                    changed = bytes([datagram[-1] ^ 1]) if wrong == "mangles" else datagram[-1:]
                    receiver.sendto((datagram[:-1] + changed)[:reply], source)
            handled += 1
    except BlockingIOError:
        pass

selector = selectors.DefaultSelector()
selector.register(0, selectors.EVENT_READ)
asks = b""
while True:
    for key, _ in selector.select():
        if key.fd != 0:
            receive()
            continue
        more = os.read(0, 65536)
        if not more:
            sys.exit(0)
        *lines, asks = (asks + more).split(b"\n")
        for line in lines:
            answer(json.loads(line))
