/* Under node: what dpc prints as WebAssembly equals what the program prints, for each schedule of the gallery and for
   mistakes. Arguments: the folder of dpc.js, the program. Run from
   the top folder. */

"use strict";
const { execFileSync } = require("child_process");
const fs = require("fs");
const path = require("path");

const [folder, program] = process.argv.slice(2).map(name => path.resolve(name));
const Dpc = require(path.join(folder, "dpc.js"));
const wasmBinary = fs.readFileSync(path.join(folder, "dpc.wasm"));
const names = fs.readdirSync("schedules").filter(name => name.endsWith(".dps"));
const wrong = { "no-colon.dps": "schedule x;\nranks P = 2\n", "never.dps": "schedule x;\nranks P = 2;\nmicrobatches M = 2;\npipe a: P stages, stage s on s, M microbatches;\nnF0 : M;\n" };

async function compiled(args, files) {
  const out = [], error = [];
  const dpc = await Dpc({ wasmBinary, noInitialRun: true, thisProgram: "dpc", print: line => out.push(line), printErr: line => error.push(line) });
  for (const [name, text] of Object.entries(files)) dpc.FS.writeFile(name, text);
  let code;
  try {
    code = dpc.callMain(args);
  } catch (fault) {
    code = fault.status;
  }
  return { code, out: out.join("\n"), error: error.join("\n") };
}

function native(args, files) {
  const home = fs.mkdtempSync(path.join(folder, "same."));
  const outputs = ["out", "error"].map(name => fs.openSync(path.join(home, name), "w"));
  let code = 0;
  for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(home, name), text);
  try {
    execFileSync(program, args, { cwd: home, stdio: ["ignore", ...outputs] });
  } catch (fault) {
    code = fault.status;
  }
  const [out, error] = ["out", "error"].map(name => fs.readFileSync(path.join(home, name), "utf8").replace(/\n$/, ""));
  fs.rmSync(home, { recursive: true });
  return { code, out, error };
}

async function main() {
  process.setMaxListeners(0); // each instance of dpc adds one
  let differ = 0, count = 0;
  const compare = async (args, files) => {
    const ours = await compiled(args, files), theirs = native(args, files);
    count++;
    for (const key of ["code", "out", "error"])
      if (ours[key] !== theirs[key]) {
        differ++;
        console.error(`dpc ${args.join(" ")}: ${key}: ${JSON.stringify(ours[key]).slice(0, 400)} instead of ${JSON.stringify(theirs[key]).slice(0, 400)}`);
      }
  };
  for (const name of names)
    for (const how of [["--emit=stats"], ["--emit=html"], ["check"]])
      await compare([...how, name], { [name]: fs.readFileSync(path.join("schedules", name), "utf8") });
  for (const [name, text] of Object.entries(wrong)) await compare([name], { [name]: text });
  console.log(`${count - differ} of ${count} outputs are equal`);
  process.exit(differ ? 1 : 0);
}

main();
