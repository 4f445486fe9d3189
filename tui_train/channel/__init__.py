"""The way to other machines: ssh, and the program that answers there."""
