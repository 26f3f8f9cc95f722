// Package chat is agents that one talks to. So far it has what a conversation is made of: messages,
// the chunks that they stream as, and what of them is stored, all of it without I/O.
//
// A [Message] and a [Chunk] are those of the AI SDK, as its hooks and models know them. Members that
// this package does not know are kept as they came.
package chat
