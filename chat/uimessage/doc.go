// Package uimessage, a part of the engine of package chat without a compatibility promise, has the message format of the
// AI SDK: messages, their parts, and the chunks that build them. It is pure: no storage, no connection, no goroutine and
// no clock. Programs use package chat, which has aliases for the types that they need.
//
//   - Message, Part and Chunk preserve members that this package does not know.
//   - Stream merges the chunks of several runs of a reply into one log, and builds the message.
//   - ToolAnswer decides about a client's answer to a call.
//   - Reconcile merges a client's copy of a conversation with the stored messages.
//   - Sanitize and Shrink make the stored form of a message.
package uimessage
