/* Runs dpc, compiled to WebAssembly. A message { id, module, files: { name: text }, args } is answered with
   { id, code, out, error }: the exit code and the two streams of one command. Each command starts in a new memory. */

importScripts("dpc.js");

const home = "/dpc/bin"; // dpc looks for its schedules beside the folder of the program: in /dpc/schedules

function prepare(fs, files) {
  fs.mkdirTree(home);
  fs.symlink(home + "/dpc", "/proc/self/exe");
  fs.mkdirTree("/work");
  fs.chdir("/work");
  for (const [name, text] of Object.entries(files)) {
    if (name.includes("/")) fs.mkdirTree(name.slice(0, name.lastIndexOf("/")));
    fs.writeFile(name, text);
  }
}

onmessage = async ({ data: { id, module, files, args } }) => {
  const out = [], error = [];
  const dpc = await Dpc({
    noInitialRun: true,
    thisProgram: "dpc",
    print: line => out.push(line),
    printErr: line => error.push(line),
    instantiateWasm: (imports, done) => {
      WebAssembly.instantiate(module, imports).then(done);
      return {};
    },
  });
  let code;
  try {
    prepare(dpc.FS, files);
    code = dpc.callMain(args);
  } catch (fault) {
    code = fault.status ?? 1;
    if (fault.status === undefined) error.push(`dpc ended: ${fault}`);
  }
  postMessage({ id, code, out: out.join("\n"), error: error.join("\n") });
};
