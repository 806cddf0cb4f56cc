// HTTP2: requests out, answers back, over pools of HTTP/2 connections (RFC 9113).
//
// The model to hold in mind, from the top:
//   HTTP2Pool          owns every request until its result is known, and decides when to dial
//   Connection         one socket: TLS below, an nghttp2 session above, bytes in between
//   ClientSession      the only owner of nghttp2's client session; its callbacks record events
//   ConnectionMachine, PoolPlan, ReconnectDelay, Disposition
//                      pure decisions: values and times in, answers out, no I/O and no clock
// A pool belongs to one event loop and all of it runs on that loop's thread.

public import Base

/// Every bound of this room, in one place.
public enum Limits {
    /// Requests that may wait in one pool's queue.
    public static let queuedRequestsMax = 20_000
    /// How often one request is written again after the peer proved that it had not processed it.
    public static let resendsMax = 8
    /// Bytes of one response's header list, as announced to the peer.
    public static let responseHeaderListBytesMax = 16 * 1024
    /// Bytes kept of one response's body; the rest is discarded and the response says so.
    public static let responseBodyBytesMax = 64 * 1024
    /// Bytes kept of one named response header field.
    public static let responseFieldBytesMax = 1024
    /// Unsent plaintext bytes on one connection beyond which it opens no more streams.
    public static let unsentBytesMax = 256 * 1024
    /// Plaintext bytes in one TLS record.
    public static let recordBytesMax = 16 * 1024
    /// Bytes read from a connection before its frames are processed.
    public static let readBufferBytes = 64 * 1024
    /// Buffers of input taken from one connection before the others get their turn.
    public static let readsPerTurnMax = 8
    /// Bytes of freed memory that one session keeps for its next streams: a thousand of them.
    public static let sessionMemoryKeptBytes = 1024 * 1024
    /// Header fields of one request.
    public static let requestFieldsMax = 48
    /// Bytes of GOAWAY debug data that are looked at.
    public static let debugDataBytesMax = 512
    /// The receive window of a whole connection, in bytes.
    public static let connectionWindowBytes = 1024 * 1024
    /// Streams on one connection after which it is replaced; ids end at 2^31 - 1, odd ones only.
    public static let streamsPerConnectionMax: UInt64 = (1 << 30) - 1_000_000
    /// Time-outs in a row after which a connection is no longer trusted.
    public static let timeoutsInARowMax = 3
    /// The shortest and the longest wait before a refused stream is opened again.
    public static let refusedDelayMin = TimeSpan.milliseconds(50)
    /// See `refusedDelayMin`.
    public static let refusedDelayMax = TimeSpan.milliseconds(200)
    /// How coarsely the queue is swept for requests whose deadline has passed.
    public static let queueSweepInterval = TimeSpan.milliseconds(50)
    /// How long a graceful close waits for its last bytes.
    public static let closingGrace = TimeSpan.seconds(1)
}
