"""PyTorch's modules as sessions."""

import numpy as np
import pytest

import pyvta

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

# The exporter's own.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore::FutureWarning")]


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Conv2d(3, 16, 3, padding=1) for _ in range(2))

    def forward(self, x, y):
        return torch.relu(self.a(x) + self.b(y)).mean((2, 3))


def test_a_module_of_several_inputs_is_near_what_torch_computes():
    torch.manual_seed(3)
    module, (x, y) = Two(), torch.randn(2, 6, 3, 8, 8)
    session = pyvta.from_torch(module, (x, y), device="cycle", method="min-max")
    assert module.training and [taken.name for taken in session.get_inputs()] == ["input_0", "input_1"]
    [found] = session.run(None, {"input_0": x.numpy(), "input_1": y.numpy()})
    with torch.no_grad():
        expected = module(x, y).numpy()
    assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)
    assert session.report.cycles > 0
    batches = [(x, y), {"input_0": x, "input_1": y}]
    again = pyvta.from_torch(module, (x[:1], y[:1]), calibration=batches, method="min-max")
    np.testing.assert_array_equal(again.run(None, {"input_0": x.numpy(), "input_1": y.numpy()})[0], found)
    with pytest.raises(TypeError, match="inputs are a dict"):
        pyvta.from_torch(module, (x, y), calibration=[x])


def test_a_session_keeps_its_model_and_calibrates_with_what_training_has():
    torch.manual_seed(4)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
    x, labels = torch.randn(6, 3, 8, 8), torch.arange(6)
    plain = pyvta.from_torch(module, x, calibration=[x.numpy()])
    assert isinstance(plain.model, pyvta.QuantizedModel) and plain.model.images == 6
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, labels), batch_size=4)
    for calibration in (x, x.clone().requires_grad_(), loader):
        session = pyvta.from_torch(module, x[:1], calibration=calibration)
        assert session.model.to_onnx() == plain.model.to_onnx()
