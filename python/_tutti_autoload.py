"""What `import torch` runs (since 2.5: the entry points "torch.backends"), so that "tutti" is known without an import. Not in
the package, since it must neither take time nor fail: whoever does not use Tutti shall not notice it."""


def register() -> None:
    import torch.distributed as dist

    def create(*arguments):
        from tutti.torch import _create
        return _create(*arguments)

    if dist.is_available() and "TUTTI" not in getattr(dist.Backend, "_plugins", ()):
        dist.Backend.register_backend("tutti", create, devices=["cpu", "cuda"])
