import subprocess
import sys


def test_the_services_need_no_grpcio() -> None:
    modules = ("calls", "codes", "open_inference", "torchserve_inference", "torchserve_management")
    code = "import sys\n" + "".join(f"import shoal.frontend.grpc.{module}\n" for module in modules)
    code += "print([name for name in sys.modules if name.split('.')[0] in ('grpc', 'grpc_tools')])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout

    assert output == "[]\n"
