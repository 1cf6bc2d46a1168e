// Starts `lanewise debug --dap` for each debug session; everything else is in package.json.
const vscode = require("vscode");

exports.activate = (context) => {
  context.subscriptions.push(
    vscode.debug.registerDebugAdapterDescriptorFactory("lanewise", {
      createDebugAdapterDescriptor(session) {
        const command = vscode.workspace.getConfiguration("lanewise").get("command") || "lanewise";
        const folder = session.workspaceFolder;
        const options = folder ? { cwd: folder.uri.fsPath } : undefined;
        return new vscode.DebugAdapterExecutable(command, ["debug", "--dap"], options);
      },
    }),
  );
};

exports.deactivate = () => {};
