package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// FuzzSources: whatever an engine answers at /kv_event_sources, what is followed
// can be connected to.
func FuzzSources(f *testing.F) {
	recorded, err := os.ReadFile("testdata/dp2/kv_event_sources.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(recorded)
	f.Add([]byte(`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://[::]:5557","replay_endpoint":"tcp://*:5558","topic":"kv"}}`))
	f.Add([]byte(`{"-1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://h:1"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		endpoints, err := parseSources(body, "10.0.0.7:8000")
		if err == nil && (len(endpoints) == 0 || len(endpoints) > MaxRanks) {
			t.Fatalf("%d endpoints", len(endpoints))
		}
		for i, e := range endpoints {
			if err := CheckEndpoint(e.Events); err != nil {
				t.Fatal(err)
			}
			if e.Replay != "" && CheckEndpoint(e.Replay) != nil {
				t.Fatal(e.Replay)
			}
			if e.Rank < 0 || i > 0 && e.Rank <= endpoints[i-1].Rank {
				t.Fatalf("ranks of %+v", endpoints)
			}
		}
	})
}

// recordedConn is a connection whose other end has said all it will.
type recordedConn struct {
	io.Reader
	read *int
}

func (c recordedConn) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.read += n
	return n, err
}
func (recordedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (recordedConn) Close() error                     { return nil }
func (recordedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (recordedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (recordedConn) SetDeadline(time.Time) error      { return nil }
func (recordedConn) SetReadDeadline(time.Time) error  { return nil }
func (recordedConn) SetWriteDeadline(time.Time) error { return nil }

// handshake is what a publisher says before its first message.
func handshake(f *testing.F) []byte {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		server, err := listener.Accept()
		if err == nil {
			defer server.Close()
			_, err = zmq4.Open(server, null.Security(), zmq4.Pub, nil, true, nil)
		}
		done <- err
	}()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(dialTimeout))
	var said bytes.Buffer
	if _, err := zmq4.Open(teed{client, &said}, null.Security(), zmq4.Sub, nil, false, nil); err != nil {
		f.Fatal(err)
	}
	if err := <-done; err != nil {
		f.Fatal(err)
	}
	return said.Bytes()
}

type teed struct {
	net.Conn
	said *bytes.Buffer
}

func (t teed) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.said.Write(p[:n])
	return n, err
}

// frame is one frame of a message, with the flags given.
func frame(flags byte, payload []byte) []byte {
	if flags&frameLong != 0 {
		return append(binary.BigEndian.AppendUint64([]byte{flags}, uint64(len(payload))), payload...)
	}
	return append([]byte{flags, byte(len(payload))}, payload...)
}

// FuzzMessages: whatever comes over the wire behind the handshake, a message is a
// number and a payload, and nothing is taken in that is longer than any batch.
func FuzzMessages(f *testing.F) {
	greeting := handshake(f)
	number := binary.BigEndian.AppendUint64(nil, 7)
	batch := payload(f, "main/0000_cold_pub.bin")
	f.Add(bytes.Join([][]byte{frame(frameMore, []byte("kv@")), frame(frameMore, number), frame(frameLong, batch)}, nil))
	f.Add(bytes.Join([][]byte{frame(frameMore, nil), frame(frameMore, binary.BigEndian.AppendUint64(nil, 1<<64-1)), frame(0, nil)}, nil))
	f.Add(frame(0, []byte("alone")))
	f.Add([]byte{frameLong, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{4, 5, 'H', 'E', 'L', 'L', 'O'})
	f.Fuzz(func(t *testing.T, data []byte) {
		read := 0
		conn := recordedConn{io.MultiReader(bytes.NewReader(greeting), bytes.NewReader(data)), &read}
		z, err := zmq4.Open(&guard{Conn: conn, r: bufio.NewReaderSize(conn, 64<<10), greeting: 64}, null.Security(), zmq4.Sub, nil, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &connection{z, conn}
		for range len(data) + 1 {
			_, payload, end, err := c.message()
			if err != nil {
				return
			}
			if end && payload != nil || len(payload) > len(data) {
				t.Fatalf("end %v with %d bytes of %d", end, len(payload), len(data))
			}
			var b Batch
			_ = Decode(payload, &b)
		}
		t.Fatal("more messages than bytes")
	})
}
