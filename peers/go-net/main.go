// Go's net package as a receiver.
//
// Two forms: "single" receives with net.UDPConn.ReadFromUDPAddrPort, the call of the standard
// library that allocates nothing; "batch" with ReadBatch of golang.org/x/net (recvmmsg), and, where
// receive offload is asked for, as many datagrams in each message as the kernel joined (UDP_GRO).
// Both wait in Go's own poller, as every Go program does.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	// Messages of one call, as many as weir's own batches have.
	batchMessages = 64
	// Room for what comes as one with receive offload.
	offloadedBytes = 1 << 16
	// Room for one control message that holds an int.
	controlBytes = 64
	// Datagrams and bytes that leave as one at most.
	mostSegments = 64
	longestBytes = 65_507
)

func main() {
	form := "single"
	if len(os.Args) > 1 {
		form = os.Args[1]
	}
	if form != "single" && form != "batch" {
		fmt.Fprintf(os.Stderr, "peer-go-net: %q is no form; there are: single, batch\n", form)
		os.Exit(2)
	}
	if err := receive(form); err != nil {
		fmt.Fprintln(os.Stderr, "peer-go-net:", err)
		os.Exit(1)
	}
}

func receive(form string) error {
	talk := newTalk(bufio.NewReader(os.Stdin), os.Stdout)
	serve, err := talk.open()
	if err != nil {
		return err
	}
	if serve.ReceiveOffload && form != "batch" {
		err := errors.New("the net package has no receive offload; the form \"batch\" has")
		return errors.Join(err, talk.fail(err.Error(), true))
	}
	conn, settings, err := bind(serve, form)
	if err != nil {
		return errors.Join(err, talk.fail(err.Error(), false))
	}
	sink := newSink(serve.WorkSteps)
	if err := talk.ready(conn.LocalAddr().String(), settings); err != nil {
		return err
	}
	go func() {
		if err := talk.answer(sink); err != nil {
			fmt.Fprintln(os.Stderr, "peer-go-net:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}()
	if form == "single" {
		return receiveSingle(conn, serve, sink)
	}
	return receiveBatch(conn, serve, sink)
}

func bind(serve *serveAsk, form string) (*net.UDPConn, map[string]string, error) {
	address, err := netip.ParseAddrPort(serve.Address)
	if err != nil {
		return nil, nil, err
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		return nil, nil, err
	}
	if serve.ReceiveBufferBytes != nil {
		if err := conn.SetReadBuffer(*serve.ReceiveBufferBytes); err != nil {
			return nil, nil, err
		}
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	buffer := 0
	var failed error
	err = raw.Control(func(fd uintptr) {
		if serve.ReceiveOffload {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		}
		if failed == nil {
			buffer, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, nil, err
	}
	settings := map[string]string{
		"library":              library(form),
		"receive-buffer-bytes": strconv.Itoa(buffer),
		"receive-offload":      strconv.FormatBool(serve.ReceiveOffload),
	}
	if serve.WorkSteps != nil {
		settings["work"] = strconv.FormatUint(uint64(*serve.WorkSteps), 10)
	}
	if serve.ReplyBytes != nil {
		settings["reply-bytes"] = strconv.Itoa(*serve.ReplyBytes)
	}
	if serve.RunsTogether != nil {
		settings["runs-together"] = strconv.Itoa(*serve.RunsTogether)
	}
	return conn, settings, nil
}

// The versions that this program was built with.
func library(form string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "Go net, " + form
	}
	if form == "single" {
		return strings.Replace(info.GoVersion, "go", "Go ", 1) + " net"
	}
	for _, module := range info.Deps {
		if module.Path == "golang.org/x/net" {
			return strings.Replace(info.GoVersion, "go", "Go ", 1) + " x/net " + module.Version
		}
	}
	return info.GoVersion + " x/net"
}

func receiveSingle(conn *net.UDPConn, serve *serveAsk, sink *sink) error {
	buffer := make([]byte, serve.SizeBytes+1)
	for {
		length, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		sink.datagram(buffer[:length])
		sink.publish()
		if serve.ReplyBytes != nil {
			if _, err := conn.WriteToUDPAddrPort(buffer[:min(length, *serve.ReplyBytes)], from); err != nil {
				return err
			}
		}
	}
}

func receiveBatch(conn *net.UDPConn, serve *serveAsk, sink *sink) error {
	bytes := serve.SizeBytes + 1
	if serve.ReceiveOffload {
		bytes = offloadedBytes
	}
	answers := newAnswers()
	messages := make([]ipv4.Message, batchMessages)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, bytes)}
		if serve.ReceiveOffload {
			messages[i].OOB = make([]byte, controlBytes)
		}
	}
	packets := ipv4.NewPacketConn(conn)
	for {
		count, err := packets.ReadBatch(messages, 0)
		if err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			return err
		}
		for i := range messages[:count] {
			message := &messages[i]
			sink.segments(message.Buffers[0][:message.N], segmentBytes(message.OOB[:message.NN]))
		}
		sink.publish()
		if serve.ReplyBytes != nil {
			answers.of(messages[:count], *serve.ReplyBytes, serve.SendOffload)
			if err := answers.send(packets); err != nil {
				return err
			}
		}
	}
}

// What goes back. Its memory is used again for every batch.
type answers struct {
	messages []ipv4.Message
	// Of the message of the same place: its pieces, and room for its control data.
	pieces  [][][]byte
	control [][]byte
}

func newAnswers() *answers {
	return &answers{}
}

// Adds a message with one piece, and gives its place.
func (a *answers) add(piece []byte, to net.Addr) int {
	place := len(a.messages)
	if place == len(a.pieces) {
		a.pieces = append(a.pieces, make([][]byte, 0, mostSegments))
		a.control = append(a.control, make([]byte, unix.CmsgSpace(2)))
	}
	a.pieces[place] = append(a.pieces[place][:0], piece)
	a.messages = append(a.messages, ipv4.Message{Addr: to})
	return place
}

// Has the kernel cut a message into datagrams of so many bytes (UDP_SEGMENT).
func (a *answers) cut(place, segment int) {
	control := a.control[place]
	header := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	header.Level, header.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	header.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(segment))
	a.messages[place].OOB = control
}

// Makes messages that go back to where these came from, at most so many bytes of each datagram. What came as one leaves
// as one, unless the answers are shorter; and with joins so do those in a row to one sender that have one size.
func (a *answers) of(messages []ipv4.Message, most int, joins bool) {
	a.messages = a.messages[:0]
	var open *net.UDPAddr
	place, size := 0, 0
	for i := range messages {
		message := &messages[i]
		received := message.Buffers[0][:message.N]
		segment := segmentBytes(message.OOB[:message.NN])
		switch {
		case segment == 0 || segment >= len(received):
			received = received[:min(len(received), most)]
			to, _ := message.Addr.(*net.UDPAddr)
			count := 0
			if open != nil {
				count = len(a.pieces[place])
			}
			if joins && open != nil && to != nil && len(received) == size && size > 0 && count < mostSegments &&
				(count+1)*size <= longestBytes && to.Port == open.Port && to.IP.Equal(open.IP) && to.Zone == open.Zone {
				a.pieces[place] = append(a.pieces[place], received)
				a.cut(place, size)
				continue
			}
			place, size, open = a.add(received, message.Addr), len(received), to
		case most >= segment:
			a.cut(a.add(received, message.Addr), segment)
			open = nil
		default:
			for start := 0; start < len(received); start += segment {
				datagram := received[start:min(start+segment, len(received))]
				a.add(datagram[:min(len(datagram), most)], message.Addr)
			}
			open = nil
		}
	}
	for i := range a.messages {
		a.messages[i].Buffers = a.pieces[i]
	}
}

func (a *answers) send(packets *ipv4.PacketConn) error {
	for rest := a.messages; len(rest) > 0; {
		sent, err := packets.WriteBatch(rest, 0)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		rest = rest[max(sent, 0):]
	}
	return nil
}

// The length of the datagrams that came as one; 0 if there was only one.
func segmentBytes(control []byte) int {
	for len(control) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO && len(data) >= 2 {
			return int(binary.NativeEndian.Uint16(data))
		}
		control = rest
	}
	return 0
}

type serveAsk struct {
	Address            string  `json:"address"`
	SizeBytes          int     `json:"size_bytes"`
	ReceiveOffload     bool    `json:"receive_offload"`
	ReceiveBufferBytes *int    `json:"receive_buffer_bytes"`
	WorkSteps          *uint32 `json:"work_steps"`
	// Whether answers in a row to one sender may leave as one.
	SendOffload bool `json:"send_offload"`
	// Bytes of a datagram's beginning that it is answered with; none: it is a sink.
	ReplyBytes *int `json:"reply_bytes"`
	// Generators that flood it together, each with a run of its own.
	RunsTogether *int `json:"runs_together"`
}

type ask struct {
	name  string
	serve serveAsk
	run   runAsk
}

type talk struct {
	input  *bufio.Reader
	output *os.File
}

func newTalk(input *bufio.Reader, output *os.File) *talk {
	return &talk{input, output}
}

// The next ask; nil at the end of the input.
func (t *talk) read() (*ask, error) {
	line, err := t.input.ReadBytes('\n')
	if len(line) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var asked ask
	var named struct {
		Ask string `json:"ask"`
	}
	err = errors.Join(
		json.Unmarshal(line, &named),
		json.Unmarshal(line, &asked.serve),
		json.Unmarshal(line, &asked.run),
	)
	if err != nil {
		return nil, fmt.Errorf("weir asked for something that is not understood: %w", err)
	}
	asked.name = named.Ask
	return &asked, nil
}

func (t *talk) say(answer any) error {
	line, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	_, err = t.output.Write(append(line, '\n'))
	return err
}

func (t *talk) open() (*serveAsk, error) {
	asked, err := t.read()
	if err != nil {
		return nil, err
	}
	if asked == nil || asked.name != "serve" {
		return nil, errors.New("weir did not ask to serve")
	}
	return &asked.serve, nil
}

func (t *talk) ready(address string, settings map[string]string) error {
	ready := map[string]any{"address": address, "settings": settings}
	return t.say(map[string]any{"ready": ready})
}

func (t *talk) fail(message string, unavailable bool) error {
	failure := map[string]any{"message": message, "unavailable": unavailable}
	return t.say(map[string]any{"error": failure})
}

// Answers until the input ends.
func (t *talk) answer(sink *sink) error {
	for {
		asked, err := t.read()
		if asked == nil || err != nil {
			return err
		}
		switch asked.name {
		case "begin":
			sink.begin(asked.run)
			err = t.say(map[string]bool{"ok": true})
		case "start":
			sink.start()
			err = t.say(map[string]bool{"ok": true})
		case "count":
			received, handled := sink.counts()
			err = t.say(map[string]uint64{"received": received, "handled": handled})
		case "end":
			err = t.say(sink.end())
		default:
			err = fmt.Errorf("weir asked for %q, which is not understood", asked.name)
		}
		if err != nil {
			return err
		}
	}
}
