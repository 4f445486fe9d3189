"""Data with images: pictures that are drawn here, and rows that name them."""

import base64


def draw_pictures(python_with_pillow, folder):
    """Draw red.png, blue.jpg, green.gif, grey16.png and what is damaged or odd into a folder."""
    import subprocess

    script = (
        "import sys; from PIL import Image; from pathlib import Path; f = Path(sys.argv[1])\n"
        "f.mkdir(parents=True, exist_ok=True)\n"
        "for name, size in {'red.png': (60, 90), 'blue.jpg': (112, 84), 'green.gif': (56, 56)}.items():\n"
        "    Image.new('RGB', size, name.partition('.')[0]).save(f / name)\n"
        "Image.frombytes('L', (64, 64), bytes(at * 7919 % 251 for at in range(4096))).save(f / 'noise.png')\n"
        "whole = (f / 'noise.png').read_bytes(); (f / 'cut.png').write_bytes(whole[:len(whole) // 2])\n"
        "Image.effect_noise((64, 64), 90).convert('RGB').save(f / 'noise.jpg')\n"
        "whole = (f / 'noise.jpg').read_bytes(); (f / 'cut.jpg').write_bytes(whole[:len(whole) // 2])\n"
        "Image.new('RGB', (2, 50)).save(f / 'thin.png'); Image.new('1', (10000, 9000)).save(f / 'huge.png')\n"
        "Image.new('1', (20000, 10000)).save(f / 'bomb.png')\n"
        "Image.frombytes('I;16', (64, 64), b''.join((at * 16).to_bytes(2, 'little') for at in range(4096)))"
        ".save(f / 'grey16.png')\n"
        "Image.new('F', (64, 64), 0.5).save(f / 'real.tiff')\n"
    )
    (folder / "drawn.png").parent.mkdir(parents=True, exist_ok=True)
    (folder / "drawn.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\nshowpage\n")
    subprocess.run([str(python_with_pillow), "-c", script, str(folder)], check=True)
    (folder / "empty.png").touch()
    (folder / "text.png").write_text("no picture")


def row(images, text="<image>\nWhat colour is it?", answer="red"):
    """Return a chat about images."""
    turns = [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    return {"messages": turns, "images": images}


def as_base64(path):
    """Return a file as base64."""
    return base64.b64encode(path.read_bytes()).decode()
