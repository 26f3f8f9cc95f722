// Package extract is a model that needs neither a network nor a key: it answers from a folder of text,
// in the words of its files, and says which they are. The same question has the same answer, so a reply
// that was cut off goes on where it was, with nothing said twice.
package extract
