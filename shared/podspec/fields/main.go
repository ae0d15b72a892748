// Prints the fields of a core/v1 PodTemplateSpec as lines of `Type.field shape [merge KEY] [retainKeys]`, from the Go
// types that the API server itself is built of; with `cases`, what its strategic merge makes of the patches on standard
// input. In this directory:
//
//	go run . > ../src/fields.txt
//	go run . cases < ../tests/merges/cases.yaml > ../tests/merges/merged.json
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// Types that are written otherwise than they are declared.
var written = map[string]string{
	"resource.Quantity":  "quantity",
	"intstr.IntOrString": "intOrString",
	"v1.Time":            "string",
	"v1.FieldsV1":        "any",
}

var lines []string
var seen = map[reflect.Type]bool{}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "cases" {
		cases()
		return
	}
	fields(reflect.TypeOf(core.PodTemplateSpec{}))
	sort.Strings(lines)
	fmt.Println("# Made by shared/podspec/fields from k8s.io/api v0.34.3. Not to be edited.")
	for _, line := range lines {
		fmt.Println(line)
	}
}

func shape(of reflect.Type) string {
	if name, found := written[of.String()]; found {
		return name
	}
	switch of.Kind() {
	case reflect.Pointer:
		return shape(of.Elem())
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "string"
		}
		return "[]" + shape(of.Elem())
	case reflect.Map:
		return "{}" + shape(of.Elem())
	case reflect.Struct:
		fields(of)
		return of.Name()
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	}
	panic(of)
}

func fields(of reflect.Type) {
	if seen[of] {
		return
	}
	seen[of] = true
	visit(of, of.Name())
}

func visit(of reflect.Type, owner string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && (strings.Contains(options, "inline") || field.Anonymous) {
			visit(field.Type, owner)
			continue
		}
		line := owner + "." + name + " " + shape(field.Type)
		for _, strategy := range strings.Split(field.Tag.Get("patchStrategy"), ",") {
			switch strategy {
			case "merge":
				line += " merge " + field.Tag.Get("patchMergeKey")
			case "retainKeys":
				line += " retainKeys"
			}
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
}

func cases() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	var given struct {
		Base    any            `json:"base"`
		Patches map[string]any `json:"patches"`
	}
	if err := yaml.Unmarshal(text, &given); err != nil {
		panic(err)
	}
	var made []string
	for name, patch := range given.Patches {
		base, _ := json.Marshal(given.Base)
		text, _ := json.Marshal(patch)
		merged, err := strategicpatch.StrategicMergePatch(base, text, core.PodTemplateSpec{})
		if err != nil {
			panic(name + ": " + err.Error())
		}
		made = append(made, fmt.Sprintf("%q: %s", name, merged))
	}
	sort.Strings(made)
	fmt.Println("{" + strings.Join(made, ",\n") + "}")
}
