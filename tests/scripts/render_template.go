// Renders a template of Ollama: render_template FILE, with messages as JSON on stdin.
package main

import (
	"encoding/json"
	"os"
	"text/template"
)

type message struct{ Role, Content string }

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var messages []message
	if err := json.NewDecoder(os.Stdin).Decode(&messages); err != nil {
		panic(err)
	}
	made, err := template.New("").Parse(string(text))
	if err != nil {
		panic(err)
	}
	if err := made.Execute(os.Stdout, map[string]any{"Messages": messages}); err != nil {
		panic(err)
	}
}
