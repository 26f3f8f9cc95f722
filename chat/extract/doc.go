// Package extract is a model that needs neither a network nor a key. It answers with sentences quoted from the text
// files of a folder, and names the files. The same question always has the same answer, so an interrupted reply
// resumes at the exact word.
package extract
